//! All `unsafe` of the object: bytes of packets, rows of maps, helpers of the kernel.
//!
//! What the verifier proves is not repeated: it refuses a program that reads beyond what was checked, or uses a row that was not found.
#![expect(
    unsafe_code,
    reason = "packets, map rows and helpers are raw pointers; this module is the one place that touches them"
)]

mod helpers;
mod packet;
mod rows;

pub(super) use helpers::*;
pub(super) use packet::{end, fill, in_memory, read, window};
pub(super) use rows::{Flow, bump, copied, flow, row, row_mut};

/// What the kernel is told: `bpf_fib_lookup`, among others, is given to programs with a licence that is compatible with its own alone.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

//! The kernel half: maps, access to packets, and the programs.
//!
//! Invariant: fast programs write no packet byte directly. A program that does gets a prologue from the verifier that unclones every
//! packet, and every TCP segment is a clone; `bpf_skb_store_bytes` pays only where something is written.

mod constants;
mod finish;
mod maps;
mod probe;
mod programs;
mod raw;
mod skb;
mod tables;

//! The dataplane, in three rooms:
//!
//! * [`layout`]: keys, values, reasons: the one definition of every byte that crosses a BPF map.
//! * [`logic`]: what is done with a packet, generic over [`logic::Packet`] and [`logic::Tables`]; native tests live beside it.
//! * `kernel` (feature `bpf`, in the binary half): maps, entry points, packet access.
//!
//! Invariant: nothing in `layout` and `logic` calls a BPF helper or can panic; both build on the host.
#![cfg_attr(not(test), no_std)]

pub mod layout;
pub mod logic;

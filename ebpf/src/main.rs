//! The BPF object.
#![no_std]
#![no_main]

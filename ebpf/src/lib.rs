//! The dataplane.
#![no_std]

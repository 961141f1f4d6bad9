//! Packets through the programs of the object, loaded into the running kernel: what the verifier takes and what comes out, byte by byte.
//!
//! Needs root and `OSMIA_OBJECT`; `cargo xtask test packet` sets it.

#![expect(clippy::expect_used, reason = "a test fails by panic, also in what its functions share")]

mod golden;
mod object;
mod receiver;

//! The agent's library against the real kernel: pins and programs, devices and routes. Needs root; everything happens in namespaces that
//! end with the test's thread.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, wherever it does"
)]

mod disk;
mod pods;
mod policy;
mod power;
mod program;
mod replaced;
mod space;
mod underlay;

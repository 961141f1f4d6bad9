//! The CNI specification, 0.3.0 to 1.1.0, as far as a plugin sees it: environment, configuration, results, errors.
//!
//! Invariant: pure. Nothing here reads a file, the environment or the clock; what comes from outside becomes a typed value or a
//! [`Failure`](crate::protocol::Failure) with the code of the specification, never a panic.

pub mod args;
pub mod attachments;
pub mod config;
pub mod environment;
pub mod error;
pub mod fields;
pub mod mac;
pub mod result;
pub mod version;
pub mod wishes;

pub use args::Args;
pub use config::{Config, Document};
pub use environment::{Attach, Call};
pub use mac::Mac;
pub use result::{CniResult, Interface};
pub use version::Version;

//! The node agent. Data flows one way: source → model → compile → program → maps.
//!
//! Invariant: `compile` is pure; what comes from outside never panics; ADD and DEL never need the apiserver.

pub mod addresses;
pub mod app;
mod appended;
pub mod attachments;
pub mod catalogue;
pub mod clock;
pub mod compile;
pub mod config;
pub mod model;
mod netlink;
pub mod program;
pub mod publish;
pub mod readiness;
pub mod serve;
pub mod source;
pub mod sys;
pub mod underlay;

//! The CNI plugin as a library: what the agent and the tests share with the binary.
//!
//! * [`protocol`]: attachment key, host link name, messages between plugin and agent.
pub mod protocol;

//! The CNI plugin as a library: what the agent and the tests share with the binary.
//!
//! * [`protocol`]: attachment key, host link name, messages between plugin and agent.
//! * [`client`]: the plugin's side of that connection.
//! * [`link`]: the veth.
//! * [`queue`]: DELs that wait for the agent.
//! * [`spec`]: configuration, results and errors of the CNI specification.
//! * [`verbs`]: the commands.

pub mod client;
pub mod link;
pub mod protocol;
pub mod queue;
mod run;
pub mod spec;
pub mod verbs;

pub use run::run;

//! What the agent answers: the plugin on a socket, probes and Prometheus by HTTP, and the heartbeat that the plugin looks at.

pub mod connection;
pub mod heartbeat;
pub mod http;
pub mod metrics;
pub mod socket;

//! Life of a flow: opened by its first packet, kept by lookups, moved to the established table when it has proved itself, ended by time.
//!
//! Invariant: an entry is used only if it arrived where it may (`hook`), is not expired (or its opposite is not), and was decided under
//! today's epochs and route generation. All of that is judged at lookup: nothing depends on a collector that runs.

pub mod decide;
pub mod life;
pub mod promote;
pub mod timeout;

//! Traffic that runs while something is done to the nodes: numbered datagrams, connects, one bulk stream, connections of which one side writes.
//!
//! Invariant: receivers count. A sender that cannot keep its pace shows as fewer sent, never as lost.

mod connects;
mod datagrams;
mod stream;
mod writing;

pub use connects::{Connects, ConnectsReport};
pub use datagrams::{Datagrams, DatagramsReport};
pub use stream::Stream;
pub use writing::Writing;

//! What plugin and agent say to each other, and the names both derive from an attachment.
//!
//! Invariant: this module alone owns the attachment key, the host link's name, and the messages; a message of another version is
//! refused with both versions in the text.

pub mod frame;
pub mod handover;
pub mod key;
pub mod link_name;
pub mod message;

pub use key::{AttachmentKey, KeyError};
pub use link_name::host_link_name;
pub use message::{Answer, Assignment, Failure, PROTOCOL, PodRef, Request};

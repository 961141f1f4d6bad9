//! Rows as people and programs read them: one decoding, shown as text or as JSON.
//!
//! * [`Cell`] and [`Record`]: a decoded value and a row of named ones; both are [`serde::Serialize`] and [`std::fmt::Display`].
//! * [`Context`]: what the rows alone do not say: the clock, the nodes by number, the devices by index.
//! * [`catalogue`]: every map as a [`MapView`], whatever its types.
//! * A module for each layout type.
//!
//! Invariant: every byte pattern decodes without a panic, and one that nobody writes is shown as what it is, never as something else.

pub mod catalogue;
mod cell;
mod codec;
pub mod config;
mod context;
mod counters;
mod devices;
pub mod drops;
pub mod endpoint;
pub mod flow;
mod fragment;
pub mod meta;
pub mod node;
mod parse;
pub mod policy;
pub mod protocol;
mod record;
mod route;
mod slots;
#[cfg(test)]
mod testing;

pub use cell::{Cell, human_duration, human_size};
pub use codec::{GetError, KeyError, MapView, Row, Rows};
pub use context::Context;
pub use devices::Devices;
pub use parse::{Prefix, address, ip, number, socket_text};
pub use record::Record;

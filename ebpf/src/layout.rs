//! The bytes in the maps: every key and value, its size and its byte order. The agent, the CLI and the programs all use these.
//!
//! Invariant: a type here has no padding the compiler chose, is `Copy`, is valid for every bit pattern, and its size is asserted.
//! Wire values (addresses, ports) are byte arrays in network order; counters, indexes and times are native integers. Whoever changes
//! a size, an order or a meaning raises [`LAYOUT`]: pins of different layouts live in different folders and are migrated, never misread.
//! Before the first release it stays 1: nobody has pins of a layout before, and a map of another shape is refused at the start.

pub mod address;
pub mod config;
pub mod drops;
pub mod endpoint;
pub mod flow;
pub mod fragment;
pub mod maps;
pub mod meta;
pub mod node;
pub mod policy;
pub mod programs;
pub mod route;
pub mod stats;

pub use address::Addr;
pub use config::{Config, Uplink};
pub use drops::{DropKey, DropReason, DropRow};
pub use endpoint::Endpoint;
pub use flow::{FlowEntry, FlowKey4, FlowKey6};
pub use fragment::{FragmentKey, FragmentRow};
pub use meta::Meta;
pub use node::Node;
pub use policy::{Asked, VerdictKey, VerdictRow};
pub use route::{Route, RouteKey};
pub use stats::Stat;

/// Number of this layout; the name of the folder under the pin root. The feature `next-layout` is for tests alone: another number, and rows
/// of another size, so that an upgrade and the way back can be tried.
pub const LAYOUT: u32 = if cfg!(feature = "next-layout") { 2 } else { 1 };

/// The oldest layout whose rows differ from these by no more than fields that are missing at their end. An agent of that layout can fill its
/// maps from these, and one of this layout from those: [`Meta::readable_from`] tells the former. Whoever changes rows in another way raises
/// this to the new [`LAYOUT`]; then neither way is gone.
pub const READABLE_FROM: u32 = 1;

/// Gives the layout types to aya's typed maps.
///
/// SAFETY of every use: the type is `repr(C)`, `Copy`, without implicit padding (asserted by size) and valid for any bytes.
macro_rules! pod {
    ($($t:ty),+ $(,)?) => { $(
        #[cfg(feature = "user")]
        #[expect(unsafe_code, reason = "aya::Pod is an unsafe marker; the contract is this module's invariant")]
        // SAFETY: repr(C), Copy, no implicit padding, any bit pattern valid.
        unsafe impl aya::Pod for $t {}
    )+ };
}
pub(crate) use pod;

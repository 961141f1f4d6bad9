//! User half of the maps: where they are pinned, how they are opened, read in batches and decoded.
//!
//! * [`pins`]: the one place that knows a pin's path; [`Pins::check`] says whether what is there may be read.
//! * [`tables`]: every map with its types; [`Table`] and [`PerCpu`] are open ones.
//! * [`decode`]: rows as people and programs read them; [`clock`]: ticks as ages; [`facts`]: what the kernel says of a pin.
//! * [`foreign`]: rows of the layout next to ours, to move them; [`standing`]: which folders are there and which is in force.
//! * [`catalogue`]: what the numbers in the policy maps stand for.
//! * [`judge`]: what policy says between two addresses, by the programs' own lookup.
//! * [`sys`]: bpf(2), where aya has no call.
//!
//! Invariant: who only reads opens read-only; a layout other than [`osmia_ebpf::layout::LAYOUT`] is said, never decoded.

mod batches;
pub mod catalogue;
pub mod clock;
pub mod decode;
pub mod error;
pub mod facts;
pub mod foreign;
pub mod judge;
pub mod open;
#[cfg(test)]
mod pages;
pub mod per_cpu;
pub mod pins;
pub mod standing;
pub mod sys;
pub mod table;
pub mod tables;

pub use error::{LayoutError, MapError};
pub use foreign::Foreign;
pub use open::{is_bpffs, layouts};
pub use osmia_ebpf::{layout, logic::Judgement};
pub use per_cpu::{PerCpu, PerCpuSpec, Sum};
pub use pins::Pins;
pub use standing::{Standing, standing};
pub use table::{Access, Spec, Table};

//! User half of the maps: where they are pinned, how they are opened, read in batches and decoded.
//!
//! * [`pins`]: the one place that knows a pin's path.
//!
//! Invariant: who only reads opens read-only; a layout other than [`osmia_ebpf::layout::LAYOUT`] is said, never decoded.

pub mod pins;

pub use osmia_ebpf::layout;

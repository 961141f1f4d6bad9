//! Desired rows → diff → maps; and the programs: loaded once, attached by pinned links, replaced in place.
//!
//! Invariant: at every moment, also between any two system calls of a start that is cut short, each hook runs one whole program set or
//! the other, both on the same maps. So the order of [`Dataplane::open`] is: maps → programs → jump table → meta row → links → old jump
//! tables. Whatever a killed agent left half done, the next start finds and finishes. Where the sets are of two layouts each has maps of its
//! own: see [`migrate`].

mod apply;
mod barrier;
mod clock;
mod diff;
mod endpoints;
mod error;
mod features;
mod folder;
mod grace;
mod links;
mod load;
mod log;
mod migrate;
mod policy;
mod sizes;
mod snapshot;
mod sweep;
mod tables;

pub use apply::Applied;
pub use barrier::barrier;
pub use endpoints::is_same;
pub use error::{ApplyError, AttachError, OpenError, PolicyError};
pub use features::Feature;
pub use folder::make_root;
pub use grace::Expedited;
pub use links::Attaching;
pub use log::ProgramLog;
pub use policy::Garbage;
pub use snapshot::Snapshot;
pub use sweep::Swept;

use std::fmt;

use aya::Ebpf;
use osmia_maps::{MapError, Pins, layout::Meta};
use tracing::info;

use self::{apply::Installed, links::Links, migrate::reached, tables::Tables};
use crate::clock::Clock;

/// The object that this agent was built with; empty with `EBPF_SKIP`.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/dataplane"));

/// How the dataplane is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where everything is pinned.
    pub pins: Pins,
    /// The skb mark bit that is ours, a constant of the programs.
    pub mark: u32,
    /// Bytes of map memory for the flow tables. What is pinned keeps its size.
    pub flow_memory: u64,
    /// How programs are attached.
    pub attaching: Attaching,
    /// What the programs say of single packets.
    pub log: ProgramLog,
}

/// The loaded programs and their open maps.
pub struct Dataplane {
    ebpf: Ebpf,
    links: Links,
    tables: Tables,
    meta: Meta,
    features: Vec<Feature>,
    installed: Option<Installed>,
    policy_rows: Option<policy::AtMost>,
}

impl fmt::Debug for Dataplane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataplane").field("meta", &self.meta).field("features", &self.features).finish_non_exhaustive()
    }
}

impl Dataplane {
    /// Adopts what is pinned, creates what is missing, and puts this object's programs on every hook that has ours.
    ///
    /// # Errors
    /// See [`OpenError`]. Whatever fails, programs that ran before go on running.
    pub fn open(options: &Options, object: &[u8], clock: &dyn Clock) -> Result<Self, OpenError> {
        if object.is_empty() {
            return Err(OpenError::NoObject);
        }
        let pins = &options.pins;
        let source = folder::prepare(pins)?;
        grace::repair();
        let before = folder::meta(pins, source.as_ref())?;
        let probed = load::probe(object, before.as_ref(), clock)?;
        features::log(&probed.features);
        let identity = load::identity(object, &probed, options.mark, options.log);
        // Of this start alone, also where the object is the same: stages hand packets on in a map of their own load.
        let table = clock::nanoseconds(clock.monotonic());
        let sizes = sizes::of_flow_tables(pins, source.as_ref(), options.flow_memory)?;
        let mut ebpf = load::maps(pins, object, table, &probed, options.mark, &sizes, options.log)?;
        load::programs(&mut ebpf)?;
        load::jump_table(&mut ebpf)?;

        let tables = Tables::open(pins)?;
        if let Some(source) = &source {
            reached("programs-loaded");
            source.fill(pins)?;
        }
        let meta = clock::meta_row(&probed, identity, before.as_ref(), clock);
        tables.meta.put(&0, &meta)?;
        reached("meta-written");

        let links = Links::new(pins.clone(), options.attaching);
        let mut replaced = 0;
        if let Some(source) = &source {
            links.double_uplinks(&mut ebpf, &source.pins)?;
            reached("uplinks-doubled");
            // As late as can be: a flow that is opened from here on is unknown to the programs that take over its hook.
            source.flows(pins)?;
            replaced += links.take_over(&mut ebpf, &source.pins)?;
            reached("links-moved");
        }
        replaced += links.adopt(&mut ebpf, &tables.attached()?)?;
        if let Some(source) = &source {
            source.flows(pins)?;
        }
        // A packet that is between two stages of the programs before needs their table for a moment more.
        barrier();
        folder::remove_old_jump_tables(pins, table)?;
        if let Some(source) = &source {
            // What packets under way then have still written.
            source.flows(pins)?;
            reached("flows-again");
            links.let_go(&source.pins)?;
            reached("uplinks-let-go");
            source.remove()?;
        }
        info!(
            object = format_args!("{identity:016x}"),
            replaced,
            adopted = before.is_some(),
            hz = meta.hz,
            tcx = links.tcx(),
            "programs loaded"
        );
        Ok(Self { ebpf, links, tables, meta, features: probed.features, installed: None, policy_rows: None })
    }

    /// The pinned row that says what is loaded.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Says which generation of the catalogue names the rows that are written from here on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn name_rows(&mut self, generation: u64) -> Result<(), MapError> {
        let meta = Meta { catalogue: generation, ..self.meta };
        self.tables.meta.put(&0, &meta)?;
        self.meta = meta;
        Ok(())
    }

    /// What this kernel can do, and what is done instead where it cannot.
    #[must_use]
    pub fn features(&self) -> &[Feature] {
        &self.features
    }

    /// Ticks a second, rounded down, as the programs have them.
    #[must_use]
    pub fn ticks_per_second(&self) -> u32 {
        clock::ticks_per_second(self.meta.hz)
    }

    /// Where the lines of this start's programs are read, once; programs of an earlier start have a ring of their own.
    ///
    /// # Errors
    /// The ring is missing from the object, was taken already, or cannot be mapped.
    pub fn program_log(&mut self) -> anyhow::Result<log::Lines> {
        log::Lines::open(&mut self.ebpf)
    }

    /// Removes the pins of links whose device is gone. Devices take their links with them; only the pins stay.
    ///
    /// # Errors
    /// The folder of links cannot be listed, or a pin in it not be removed.
    pub fn collect_links(&self) -> Result<usize, AttachError> {
        self.links.collect()
    }
}

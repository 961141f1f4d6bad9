//! From the folder of the layout next to ours, before or after, into our own: its rows into our maps, flows last and again until the programs
//! have changed over; then the folder goes. Links are moved in between, by [`super::links`].
//!
//! Invariant: at every moment one of the two folders is whole, and each hook runs the programs of one of them on that folder's maps. Which step
//! was the last is told by what is pinned alone, so that the next start of either version finishes or goes back:
//!
//! | ours has a meta row | theirs has one | then |
//! |---|---|---|
//! | no | yes | ours is thrown away and filled anew |
//! | yes | yes | both have the same rows but for what programs write; hooks may run either: flows, links, flows |
//! | yes | no | theirs is left over and goes |

mod flows;
mod step;

use std::{fs, io, path::Path};

use osmia_maps::{Access, LayoutError, MapError, Pins, Spec, Standing, Sum, layout, standing, tables};
use tracing::info;

use super::OpenError;

pub(super) use self::step::reached;

/// The folder that hooks are moved from.
pub(super) struct Source {
    pub(super) pins: Pins,
    pub(super) layout: u32,
    /// Its rows are not in our maps yet.
    pub(super) fill: bool,
    /// It has a meta row: its flows count.
    whole: bool,
}

impl Source {
    /// The folder beside ours, if there is one. Our own is thrown away where it was never filled.
    pub(super) fn find(pins: &Pins) -> Result<Option<Self>, OpenError> {
        let root = pins.root();
        let folders = standing(root)?;
        let (own, others): (Vec<Standing>, Vec<Standing>) =
            folders.into_iter().partition(|folder| folder.layout == layout::LAYOUT);
        let other = match others.as_slice() {
            [] => return Ok(None),
            [other] if other.is_next_to_ours() => other,
            _ => {
                let found = others.iter().map(|folder| folder.layout).collect();
                return Err(LayoutError::Other { root: root.to_owned(), found, expected: layout::LAYOUT }.into());
            }
        };
        let own_whole = own.iter().any(|folder| folder.meta.is_some());
        let whole = other.meta.is_some();
        if whole && !own_whole && !own.is_empty() {
            info!(
                layout = layout::LAYOUT,
                "the folder of a start that was cut short before it was filled is made anew"
            );
            remove_folder(pins)?;
        }
        let pins = Pins::of_layout(root, other.layout);
        Ok(Some(Self { pins, layout: other.layout, fill: whole && !own_whole, whole }))
    }

    /// Makes our maps ready for our programs: rows where they are not there yet, and in any case flows.
    pub(super) fn fill(&self, to: &Pins) -> Result<(), MapError> {
        if self.fill {
            self.rows(to)?;
            reached("rows-copied");
        }
        // A second pass, just before the links, finds few.
        self.flows(to)?;
        reached("flows-copied");
        Ok(())
    }

    /// All rows but flows. Nothing but programs writes them meanwhile, and those only count.
    fn rows(&self, to: &Pins) -> Result<(), MapError> {
        let from = &self.pins;
        copy(&tables::CONFIG, from, to)?;
        copy(&tables::EPOCHS, from, to)?;
        copy(&tables::ENDPOINTS, from, to)?;
        copy(&tables::ENDPOINT_IF, from, to)?;
        copy(&tables::ENDPOINT_ADDR, from, to)?;
        copy(&tables::ROUTES, from, to)?;
        copy(&tables::PEERS, from, to)?;
        copy(&tables::PEER_BLOCKS, from, to)?;
        copy(&tables::VERDICTS, from, to)?;
        copy(&tables::NODES, from, to)?;
        copy(&tables::UPLINKS, from, to)?;
        copy(&tables::BUDGETS, from, to)?;
        copy(&tables::FRAGMENTS, from, to)?;
        copy(&tables::DROP_ROWS, from, to)?;
        counters(&tables::DROPS, from, to)?;
        counters(&tables::STATS, from, to)
    }

    /// The flows that are not in our tables, or newer there than here; says how many entries were written.
    pub(super) fn flows(&self, to: &Pins) -> Result<usize, MapError> {
        if !self.whole {
            return Ok(0);
        }
        let v4 = flows::copy(&self.pins, to, [&tables::FLOW4, &tables::FLOW4_NEW])?;
        Ok(v4 + flows::copy(&self.pins, to, [&tables::FLOW6, &tables::FLOW6_NEW])?)
    }

    /// Removes the folder, of which no hook runs a program any more.
    pub(super) fn remove(&self) -> Result<(), OpenError> {
        remove_folder(&self.pins)?;
        info!(from = self.layout, to = layout::LAYOUT, "moved to this layout; the folder of the other is gone");
        Ok(())
    }
}

fn copy<K: aya::Pod, V: aya::Pod>(spec: &Spec<K, V>, from: &Pins, to: &Pins) -> Result<(), MapError> {
    let to = spec.open(to, Access::ReadWrite)?;
    spec.open_foreign(from)?.each_batch(|rows| to.put_all(rows))
}

fn counters<V: Sum>(spec: &osmia_maps::PerCpuSpec<V>, from: &Pins, to: &Pins) -> Result<(), MapError> {
    let (from, to) = (spec.open(from, Access::ReadOnly)?, spec.open(to, Access::ReadWrite)?);
    (0..from.capacity().min(to.capacity())).try_for_each(|row| to.put(row, &from.values(row)?))
}

/// Removes a folder whose links are gone. The meta row goes before the other maps: what is left of them is then nobody's.
fn remove_folder(pins: &Pins) -> Result<(), OpenError> {
    // Refused where links are in it: a hook would lose its programs with them.
    gone(&pins.links(), |path| fs::remove_dir(path))?;
    gone(&pins.map(layout::maps::META), |path| fs::remove_file(path))?;
    reached("meta-removed");
    let folder = pins.folder();
    let failed = |source| OpenError::Folder { what: "listing", path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(failed)? {
        gone(&entry.map_err(failed)?.path(), |path| fs::remove_file(path))?;
    }
    gone(&folder, |path| fs::remove_dir(path))
}

fn gone(path: &Path, remove: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), OpenError> {
    match remove(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::Folder { what: "removing", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

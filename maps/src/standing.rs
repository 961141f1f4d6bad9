//! The folders below a root while there may be two of them: what each says of itself, and which is in force.
//!
//! Invariant: a folder is in force from the moment its meta row is written, which is after its maps were filled; it loses the row before it
//! loses anything else. So a folder without it is of no use to anybody, and of two that have one either can be gone on with: hooks are
//! being moved from one to the other.

use std::path::Path;

use osmia_ebpf::layout::{LAYOUT, Meta, READABLE_FROM, meta};

use crate::{LayoutError, MapError, Pins, layouts, tables};

/// A layout's folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Its number.
    pub layout: u32,
    /// Its meta row, as far as this build knows its fields; `None` where nothing has been written.
    pub meta: Option<Meta>,
    /// Links pinned in it.
    pub links: usize,
}

impl Standing {
    /// Whether this build can move between that layout and its own, in either direction: the one before where its rows are the beginnings of
    /// ours, the one after where its meta row says that ours are the beginnings of its.
    #[must_use]
    pub fn is_next_to_ours(&self) -> bool {
        if self.layout.checked_add(1) == Some(LAYOUT) {
            self.layout >= READABLE_FROM
        } else if LAYOUT.checked_add(1) == Some(self.layout) {
            self.meta.is_none_or(|meta| (1..=LAYOUT).contains(&meta.readable_from))
        } else {
            false
        }
    }
}

/// What the folders below a root are, ascending by layout.
///
/// # Errors
/// A folder cannot be looked at, or its meta row is of another layout than its name says.
pub fn standing(root: &Path) -> Result<Vec<Standing>, LayoutError> {
    let one = |layout| {
        let pins = Pins::of_layout(root, layout);
        let links = pins.pinned_links()?.len();
        Ok(Standing { layout, meta: of_folder(&pins, layout)?, links })
    };
    layouts(root)?.into_iter().map(one).collect()
}

fn of_folder(pins: &Pins, layout: u32) -> Result<Option<Meta>, LayoutError> {
    let row = match tables::META.open_foreign(pins) {
        Ok(table) => table.get(&0)?.unwrap_or_default(),
        Err(MapError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let says = match row.magic {
        [0, 0, 0, 0, 0, 0, 0, 0] => return Ok(None),
        meta::MAGIC if row.layout == layout => return Ok(Some(row)),
        meta::MAGIC => format!("layout {}", row.layout),
        other => format!("{:?}", String::from_utf8_lossy(&other)),
    };
    Err(LayoutError::Meta { folder: pins.folder(), says, expected: layout })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(layout: u32, readable_from: Option<u32>) -> bool {
        let meta = readable_from.map(|readable_from| Meta { readable_from, ..Meta::default() });
        Standing { layout, meta, links: 0 }.is_next_to_ours()
    }

    #[test]
    fn only_neighbours_that_say_so_are_known() {
        assert!(is_known(LAYOUT + 1, Some(LAYOUT)), "the next, whose rows begin as ours");
        assert!(is_known(LAYOUT + 1, None), "the next, cut short before it said anything");
        assert!(!is_known(LAYOUT + 1, Some(LAYOUT + 1)), "the next, whose rows are others");
        assert!(!is_known(LAYOUT + 1, Some(0)), "the next, which does not say");
        assert!(!is_known(LAYOUT + 2, Some(LAYOUT)));
        assert_eq!(is_known(LAYOUT - 1, Some(0)), LAYOUT > READABLE_FROM);
        assert!(!is_known(LAYOUT, Some(LAYOUT)));
    }
}

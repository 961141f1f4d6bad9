//! Rows of the flow tables from one memory setting. What is pinned keeps its size: resizing would lose the flows in it.

use std::collections::BTreeMap;

use osmia_maps::{
    Access, MapError, Pins, Spec,
    layout::{FlowEntry, FlowKey4, FlowKey6, maps},
    tables,
};
use tracing::warn;

use super::{OpenError, migrate::Source};

/// What the kernel adds to key and value of a row: struct htab_elem (48 bytes) and a bucket (16 bytes), kernel/bpf/hashtab.c.
const OVERHEAD: u64 = 48 + 16;
/// Fewest rows of a probation table: below it, ordinary bursts push each other out.
const LEAST: u64 = 1024;
/// Most rows of a probation table.
const MOST: u64 = 4 << 20;

/// Bytes of one probation row and two established ones, in both families.
const UNIT: u64 =
    3 * (2 * (OVERHEAD + size_of::<FlowEntry>() as u64) + size_of::<FlowKey4>() as u64 + size_of::<FlowKey6>() as u64);

/// Rows of a probation table; an established one has twice as many.
fn rows_for(memory: u64) -> u32 {
    u32::try_from((memory / UNIT).clamp(LEAST, MOST)).unwrap_or(u32::MAX)
}

/// Rows of each flow table: of those that are pinned what they have, of the others what those have that they are filled from, else what the
/// setting gives.
pub(super) fn of_flow_tables(
    pins: &Pins,
    source: Option<&Source>,
    memory: u64,
) -> Result<BTreeMap<&'static str, u32>, OpenError> {
    let new = rows_for(memory);
    let pinned = [
        (maps::FLOW4_NEW, new, rows(&tables::FLOW4_NEW, pins, source)?),
        (maps::FLOW4, 2 * new, rows(&tables::FLOW4, pins, source)?),
        (maps::FLOW6_NEW, new, rows(&tables::FLOW6_NEW, pins, source)?),
        (maps::FLOW6, 2 * new, rows(&tables::FLOW6, pins, source)?),
    ];
    let mut sizes = BTreeMap::new();
    for (name, wanted, pinned) in pinned {
        if let Some(rows) = pinned.filter(|&rows| rows != wanted) {
            warn!(map = name, rows, wanted, "the pinned flow table keeps its size; the new one counts after a reboot");
        }
        sizes.insert(name, pinned.unwrap_or(wanted));
    }
    Ok(sizes)
}

fn rows<K: aya::Pod, V: aya::Pod>(
    spec: &Spec<K, V>,
    pins: &Pins,
    source: Option<&Source>,
) -> Result<Option<u32>, OpenError> {
    match spec.open(pins, Access::ReadOnly) {
        Ok(table) => Ok(Some(table.capacity())),
        Err(MapError::Missing { .. }) => match source.filter(|source| source.fill) {
            Some(source) => Ok(Some(spec.open_foreign(&source.pins)?.capacity())),
            None => Ok(None),
        },
        Err(MapError::Shape { path, property, found, expected }) => Err(OpenError::Incompatible {
            map: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            property,
            actual: found,
            expected,
        }),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_not_exceeded() {
        for memory in [2 << 20, 64 << 20, 96 << 20, 1 << 30] {
            let rows = u64::from(rows_for(memory));
            let v4 = 3 * rows * (OVERHEAD + 16 + 128);
            let v6 = 3 * rows * (OVERHEAD + 40 + 128);
            assert!(v4 + v6 <= memory && v4 + v6 > memory * 9 / 10, "{rows} rows of {memory} bytes");
        }
    }

    #[test]
    fn senseless_settings_still_give_tables() {
        assert_eq!(rows_for(0), 1024);
        assert_eq!(rows_for(u64::MAX), 4 << 20);
    }
}

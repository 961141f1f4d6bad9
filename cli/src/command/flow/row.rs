//! An entry as JSON and as a line of a table, and which come first.

use osmia_maps::{
    decode::{Cell, Context, Record, flow, flow::FlowTuple, protocol, socket_text},
    layout::{
        FlowEntry,
        flow::{F_OPENER, F_REWRITE_DST, F_REWRITE_SRC, ZONE_LOOSE, ZONE_OUT},
    },
};

use super::State;

/// An entry with its key and the table it is in.
pub(super) struct Row {
    pub(super) state: State,
    pub(super) tuple: FlowTuple,
    pub(super) entry: FlowEntry,
}

impl Row {
    /// Every field, for JSON.
    pub(super) fn record(&self, context: &Context, epochs: &[u32]) -> Record {
        Record::with_capacity(40)
            .with("state", Cell::name(self.state.name()))
            .and(self.tuple.record())
            .and(flow::value(&self.entry, context))
            .with("current", Cell::Bool(flow::is_current(&self.entry, epochs)))
    }

    /// What a person wants to see in one line.
    pub(super) fn line(&self, context: &Context, epochs: &[u32]) -> Record {
        let Self { state, tuple, entry } = self;
        let (hook, hook_device) = flow::hook(entry, context);
        let from_node = match entry.from_node {
            0 => Cell::Absent,
            number => Cell::Text(format!("node {}", context.node(number.into())).into()),
        };
        let (device, node) = flow::target(entry, context);
        let first = |cells: [Cell; 3]| cells.into_iter().find(|cell| !cell.is_absent()).unwrap_or(Cell::Absent);
        let socket = |addr, port| Cell::Text(socket_text(addr, port).into());
        let proto = protocol::text(tuple.proto);
        let zones = [(ZONE_OUT, "out"), (ZONE_LOOSE, "fragments")].into_iter();
        let zone = zones.filter(|(bit, _)| tuple.zone & bit != 0).map(|(_, name)| name).collect::<Vec<_>>().join(",");
        let current = flow::is_current(entry, epochs);
        Record::with_capacity(16)
            .with("state", Cell::name(state.name()))
            .with("proto", Cell::Text(if zone.is_empty() { proto } else { format!("{proto}({zone})").into() }))
            .with("source", socket(tuple.src, tuple.sport))
            .with("destination", socket(tuple.dst, tuple.dport))
            .with("dir", Cell::name(if entry.flags & F_OPENER != 0 { "opener" } else { "reply" }))
            .with("in", first([hook_device, from_node, hook]))
            .with("action", Cell::name_or(flow::action_name(entry), entry.action))
            .with("to", first([device, node, Cell::Absent]))
            .with("rewrite", rewrite(entry))
            .with("tcp", flow::tcp(entry))
            .with("packets", Cell::Number(entry.packets))
            .with("bytes", Cell::Size(entry.bytes))
            .with("age", Cell::Age(context.age(entry.created)))
            .with("idle", Cell::Age(context.age(entry.last_seen)))
            .with("stale", if current { Cell::Absent } else { Cell::name("stale") })
    }
}

fn rewrite(entry: &FlowEntry) -> Cell {
    let done = [
        (F_REWRITE_SRC, "src", entry.new_src, entry.new_sport),
        (F_REWRITE_DST, "dst", entry.new_dst, entry.new_dport),
    ];
    let done = done.into_iter().filter(|(flag, ..)| entry.flags & flag != 0);
    Cell::List(
        done.map(|(_, side, addr, port)| Cell::Text(format!("{side}={}", socket_text(addr, port)).into())).collect(),
    )
}

/// Sorts by last use and keeps the first `limit`. Without a clock by the tick alone.
pub(super) fn last_used_first(rows: &mut Vec<Row>, now: Option<u32>, limit: Option<usize>) {
    // One tick ahead of our reading of the clock is the newest, not the oldest.
    let ahead = now.unwrap_or(0).wrapping_add(1 << 16);
    let idle = |row: &Row| (ahead.wrapping_sub(row.entry.last_seen), row.tuple);
    if let Some(limit) = limit.filter(|limit| *limit < rows.len()) {
        if limit > 0 {
            rows.select_nth_unstable_by_key(limit - 1, idle);
        }
        rows.truncate(limit);
    }
    rows.sort_unstable_by_key(idle);
}

#[cfg(test)]
mod tests {
    use osmia_maps::layout::{Addr, FlowKey4};

    use super::*;

    fn row(last_seen: u32) -> Row {
        let tuple = FlowKey4 { src: last_seen.to_be_bytes(), ..FlowKey4::default() }.into();
        Row { state: State::New, tuple, entry: FlowEntry { last_seen, ..FlowEntry::default() } }
    }

    fn order(seen: &[u32], now: u32, limit: Option<usize>) -> Vec<u32> {
        let mut rows: Vec<Row> = seen.iter().copied().map(row).collect();
        last_used_first(&mut rows, Some(now), limit);
        rows.iter().map(|row| row.entry.last_seen).collect()
    }

    #[test]
    fn the_last_used_come_first_also_where_ticks_wrap_or_run_ahead() {
        assert_eq!(order(&[5, 90, 40], 100, None), [90, 40, 5]);
        assert_eq!(order(&[u32::MAX - 3, 2, 7], 5, None), [7, 2, u32::MAX - 3], "7 is ahead of our clock");
        assert_eq!(order(&[5, 90, 40, 60], 100, Some(2)), [90, 60]);
        assert_eq!(order(&[5, 90], 100, Some(0)), [0; 0]);
        assert_eq!(order(&[5, 90], 100, Some(7)), [90, 5]);
    }

    #[test]
    fn rewrites_name_the_side() {
        let entry = FlowEntry {
            flags: F_REWRITE_SRC | F_REWRITE_DST,
            new_src: Addr::v4([1, 2, 3, 4]),
            new_sport: 61000_u16.to_be_bytes(),
            new_dst: Addr([0xfd; 16]),
            ..FlowEntry::default()
        };
        assert_eq!(rewrite(&entry).to_string(), "src=1.2.3.4:61000,dst=fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd");
        assert!(rewrite(&FlowEntry { flags: 0, ..entry }).is_absent());
    }
}

//! Every pinned map of the layout, in the order in which a person reads them.

use super::{MapView, config, counters, drops, endpoint, flow, fragment, meta, node, policy, route, slots};

/// All of them. The jump table is no map of rows: its pins are listed by `status`.
pub static ALL: [&dyn MapView; 21] = [
    &meta::META,
    &config::CONFIG,
    &slots::EPOCHS,
    &endpoint::ENDPOINTS,
    &endpoint::ENDPOINT_IF,
    &endpoint::ENDPOINT_ADDR,
    &route::ROUTES,
    &policy::PEERS,
    &policy::PEER_BLOCKS,
    &policy::VERDICTS,
    &node::NODES,
    &slots::UPLINKS,
    &flow::FLOW4_NEW,
    &flow::FLOW4,
    &flow::FLOW6_NEW,
    &flow::FLOW6,
    &fragment::FRAGMENTS,
    &counters::DROPS,
    &drops::DROP_ROWS,
    &counters::STATS,
    &slots::BUDGETS,
];

/// A map by the name of its pin.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn MapView> {
    ALL.into_iter().find(|view| view.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_map_is_there_once_and_says_how_its_keys_are_written() {
        assert_eq!(ALL.map(|view| view.name()), crate::tables::NAMES);
        for view in ALL {
            assert_eq!(ALL.iter().filter(|other| other.name() == view.name()).count(), 1, "{}", view.name());
            assert!(!view.about().is_empty() && !view.key_help().is_empty() && !view.example().is_empty());
            assert!(find(view.name()).is_some());
        }
        assert!(find("progs").is_none());
    }
}

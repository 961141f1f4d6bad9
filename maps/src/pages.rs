//! The pages under `docs/` that name what this package defines: a name that only one of the two has fails here.

use std::collections::BTreeSet;

use osmia_ebpf::layout::{DropReason, Stat};

use crate::tables;

const DROP_REASONS: &str = include_str!("../../docs/drop-reasons.md");
const MAPS: &str = include_str!("../../docs/maps.md");

/// What the first column of a page's tables has in backquotes; twice is a mistake.
fn first_column(page: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for name in page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |")) {
        assert!(names.insert(name.0), "{} twice", name.0);
    }
    names
}

#[test]
fn every_drop_reason_and_counter_has_its_line_and_no_other_has_one() {
    let reasons = DropReason::ALL.into_iter().map(DropReason::name);
    let counters = Stat::ALL.iter().map(|stat| stat.name());
    assert_eq!(first_column(DROP_REASONS), reasons.chain(counters).collect());
}

#[test]
fn every_pinned_map_has_its_line_and_no_other_has_one() {
    assert_eq!(first_column(MAPS), tables::NAMES.into_iter().collect());
}

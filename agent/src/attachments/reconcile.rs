//! What the journal says, against what the kernel has: the differences and how each is mended.
//!
//! Invariant: pure. A living pod is never cut off for a lost record: its link and rows stay until its DEL, which finds them by the link's
//! name.

use std::collections::{BTreeMap, BTreeSet};

use osmia_maps::layout::Endpoint;

use super::record::{Phase, Record};
use crate::program::is_same;

/// A difference and its repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repair {
    /// Nothing differs: programs and rows of this attachment are adopted.
    Adopt(Record),
    /// Its row is missing or says something else: written again.
    Restore(Record),
    /// An ADD that was never completed: undone.
    Undo(Record),
    /// Its link, so its namespace, is gone: removed.
    Forget(Record),
    /// A row with a living link, but no record: kept under the link's name, its addresses are taken.
    Keep {
        /// Slot of the row.
        slot: u32,
        /// The row.
        row: Endpoint,
        /// Name of the link.
        host_link: String,
    },
    /// A row that nothing stands behind: removed.
    RemoveRow {
        /// Its slot.
        slot: u32,
    },
    /// A link of ours that nothing knows: removed.
    RemoveLink {
        /// Its ifindex.
        ifindex: u32,
        /// Its name.
        host_link: String,
    },
}

/// All repairs, those that remove rows first, so that what is restored or kept finds its place free.
#[must_use]
pub fn plan(
    records: &BTreeMap<String, Record>,
    rows: &BTreeMap<u32, Endpoint>,
    links: &BTreeMap<u32, String>,
) -> Vec<Repair> {
    let mut removals = Vec::new();
    let mut rest = Vec::new();
    let mut own_slots = BTreeSet::new();
    let mut own_links = BTreeSet::new();
    for record in records.values() {
        own_slots.insert(record.slot);
        match record.phase {
            Phase::Adding => removals.push(Repair::Undo(record.clone())),
            Phase::Added { ifindex } if links.get(&ifindex) == Some(&record.host_link) => {
                own_links.insert(ifindex);
                let same = rows.get(&record.slot).is_some_and(|row| is_same(row, &record.endpoint(ifindex)));
                rest.push(if same { Repair::Adopt(record.clone()) } else { Repair::Restore(record.clone()) });
            }
            Phase::Added { .. } => removals.push(Repair::Forget(record.clone())),
        }
    }
    for (slot, row) in rows.iter().filter(|(slot, _)| !own_slots.contains(slot)) {
        let link = links.get(&row.ifindex).filter(|_| !own_links.contains(&row.ifindex));
        match link {
            // Its record is there and was undone or forgotten above: the row is a leftover of it.
            Some(name) if !records.contains_key(name) => {
                own_links.insert(row.ifindex);
                rest.push(Repair::Keep { slot: *slot, row: *row, host_link: name.clone() });
            }
            _ => removals.push(Repair::RemoveRow { slot: *slot }),
        }
    }
    for (ifindex, name) in links.iter().filter(|(ifindex, _)| !own_links.contains(ifindex)) {
        // Links of undone or forgotten records go with those.
        if !records.contains_key(name) {
            rest.push(Repair::RemoveLink { ifindex: *ifindex, host_link: name.clone() });
        }
    }
    removals.extend(rest);
    removals
}

#[cfg(test)]
mod tests {
    use osmia_cni::protocol::{AttachmentKey, PodRef, host_link_name};

    use super::*;

    fn record(id: &str, slot: u32, phase: Phase) -> Record {
        let addresses = vec![format!("10.0.0.{slot}").parse().unwrap()];
        let (netns_id, pod) = ((4, u64::from(slot)), PodRef::default());
        Record { netns_id, pod, addresses, slot, ..Record::example(id, phase) }
    }

    fn by_link(records: &[&Record]) -> BTreeMap<String, Record> {
        records.iter().map(|record| (record.host_link.clone(), (*record).clone())).collect()
    }

    #[test]
    fn what_agrees_is_adopted() {
        let r = record("a", 1, Phase::Added { ifindex: 7 });
        let mut row = r.endpoint(7);
        row.ingress_rules = 5;
        let plan = plan(&by_link(&[&r]), &[(1, row)].into(), &[(7, r.host_link.clone())].into());
        assert_eq!(plan, [Repair::Adopt(r)]);
    }

    #[test]
    fn a_missing_or_wrong_row_is_restored() {
        let r = record("a", 1, Phase::Added { ifindex: 7 });
        let links = [(7, r.host_link.clone())].into();
        assert_eq!(plan(&by_link(&[&r]), &[].into(), &links), [Repair::Restore(r.clone())]);
        let wrong = Endpoint { v4: [9; 4], ..r.endpoint(7) };
        assert_eq!(plan(&by_link(&[&r]), &[(1, wrong)].into(), &links), [Repair::Restore(r)]);
    }

    #[test]
    fn an_unfinished_add_is_undone_with_its_link_and_row() {
        let r = record("a", 1, Phase::Adding);
        let plan = plan(&by_link(&[&r]), &[(1, r.endpoint(7))].into(), &[(7, r.host_link.clone())].into());
        assert_eq!(plan, [Repair::Undo(r)]);
    }

    #[test]
    fn a_pod_whose_namespace_went_is_forgotten() {
        let r = record("a", 1, Phase::Added { ifindex: 7 });
        assert_eq!(plan(&by_link(&[&r]), &[(1, r.endpoint(7))].into(), &[].into()), [Repair::Forget(r.clone())]);
        // The same ifindex, another device.
        let other = [(7, host_link_name(&AttachmentKey::new("z", "eth0").unwrap()))].into();
        let found = plan(&by_link(&[&r]), &[(1, r.endpoint(7))].into(), &other);
        assert!(found.contains(&Repair::Forget(r)), "{found:?}");
    }

    #[test]
    fn a_living_pod_without_record_is_kept() {
        let r = record("a", 3, Phase::Added { ifindex: 7 });
        let found = plan(&[].into(), &[(3, r.endpoint(7))].into(), &[(7, r.host_link.clone())].into());
        assert_eq!(found, [Repair::Keep { slot: 3, row: r.endpoint(7), host_link: r.host_link }]);
    }

    #[test]
    fn rows_and_links_that_nothing_stands_behind_are_removed() {
        let r = record("a", 3, Phase::Added { ifindex: 7 });
        assert_eq!(plan(&[].into(), &[(3, r.endpoint(7))].into(), &[].into()), [Repair::RemoveRow { slot: 3 }]);
        let link = [(7, r.host_link.clone())].into();
        assert_eq!(
            plan(&[].into(), &[].into(), &link),
            [Repair::RemoveLink { ifindex: 7, host_link: r.host_link.clone() }]
        );
        // Two rows for one link: the record's slot counts.
        let found = plan(&by_link(&[&r]), &[(3, r.endpoint(7)), (9, r.endpoint(7))].into(), &link);
        assert_eq!(found, [Repair::RemoveRow { slot: 9 }, Repair::Adopt(r)]);
    }

    #[test]
    fn after_a_reboot_nothing_is_left_to_do() {
        assert_eq!(plan(&[].into(), &[].into(), &[].into()), []);
    }
}

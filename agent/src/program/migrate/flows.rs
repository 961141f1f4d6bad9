//! Flow entries of both tables into ours, while programs of either layout write to both.
//!
//! A direction's packets come by one hook, so only one program set counts in its entry at a time: of the two entries of a key the one seen
//! later is the true one. The opposite direction only adds bits to it, which are kept from both.

use aya::Pod;
use osmia_maps::{
    Access, MapError, Pins, Spec, Table,
    layout::{FlowEntry, flow::F_REPLIED},
};

/// Copies one family. `specs`: established, probation. Says how many entries were written.
pub(super) fn copy<K: Pod>(from: &Pins, to: &Pins, specs: [&Spec<K, FlowEntry>; 2]) -> Result<usize, MapError> {
    let [established, probation] = specs;
    let own = Own {
        established: established.open(to, Access::ReadWrite)?,
        probation: probation.open(to, Access::ReadWrite)?,
    };
    let mut written = 0;
    established.open_foreign(from)?.each_batch(|rows| {
        for (key, entry) in rows {
            written += usize::from(own.promoted(key, entry)?);
        }
        Ok(())
    })?;
    probation.open_foreign(from)?.each_batch(|rows| {
        for (key, entry) in rows {
            written += usize::from(own.on_probation(key, entry)?);
        }
        Ok(())
    })?;
    Ok(written)
}

/// Our tables of one family.
struct Own<K> {
    established: Table<K, FlowEntry>,
    probation: Table<K, FlowEntry>,
}

impl<K: Pod> Own<K> {
    /// An entry that is established there; it may have been on probation when it was copied before.
    fn promoted(&self, key: &K, theirs: &FlowEntry) -> Result<bool, MapError> {
        let established = self.established.get(key)?;
        let earlier = match established {
            None => self.probation.get(key)?,
            some => some,
        };
        let entry = match (merged(theirs, earlier.as_ref()), established) {
            (Some(entry), _) => entry,
            (None, Some(_)) => return Ok(false),
            // Newer on probation here: moved as it is.
            (None, None) => earlier.unwrap_or(*theirs),
        };
        match self.established.put(key, &entry) {
            Ok(()) => {
                self.probation.remove(key)?;
            }
            // It works on probation as well, which makes room by itself.
            Err(MapError::Full { .. }) => self.probation.put(key, &entry)?,
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// An entry that is on probation there; ours may have been promoted meanwhile.
    fn on_probation(&self, key: &K, theirs: &FlowEntry) -> Result<bool, MapError> {
        let (table, ours) = match self.established.get(key)? {
            Some(ours) => (&self.established, Some(ours)),
            None => (&self.probation, self.probation.get(key)?),
        };
        match merged(theirs, ours.as_ref()) {
            Some(entry) => table.put(key, &entry).map(|()| true),
            None => Ok(false),
        }
    }
}

/// What our entry becomes; `None`: stays as it is.
fn merged(theirs: &FlowEntry, ours: Option<&FlowEntry>) -> Option<FlowEntry> {
    let Some(ours) = ours else { return Some(*theirs) };
    // Ticks may wrap between the two.
    let later = theirs.last_seen.wrapping_sub(ours.last_seen) as i32;
    let newer = later > 0 || later == 0 && theirs.packets > ours.packets;
    if theirs.created != ours.created {
        // The key was opened anew in one of them.
        return newer.then_some(*theirs);
    }
    let base = if newer { theirs } else { ours };
    let entry = FlowEntry {
        flags: base.flags | (theirs.flags | ours.flags) & F_REPLIED,
        tcp: theirs.tcp | ours.tcp,
        replied: if ours.flags & F_REPLIED != 0 { ours.replied } else { theirs.replied },
        ..*base
    };
    (entry != *ours).then_some(entry)
}

#[cfg(test)]
mod tests {
    use osmia_maps::layout::flow::{T_FIN, T_SYN};

    use super::*;

    fn ours() -> FlowEntry {
        FlowEntry { target: 1, last_seen: 100, packets: 10, created: 50, tcp: T_SYN, ..FlowEntry::default() }
    }

    #[test]
    fn an_entry_that_we_lack_is_taken() {
        assert_eq!(merged(&ours(), None), Some(ours()));
    }

    #[test]
    fn the_one_seen_later_is_true() {
        let later = FlowEntry { last_seen: 101, packets: 3, target: 2, ..ours() };
        assert_eq!(merged(&later, Some(&ours())), Some(later));
        assert_eq!(merged(&ours(), Some(&later)), None, "what the programs here wrote stays");
        let more = FlowEntry { packets: 11, ..ours() };
        assert_eq!(merged(&more, Some(&ours())), Some(more));
        assert_eq!(merged(&ours(), Some(&more)), None);
        assert_eq!(merged(&ours(), Some(&ours())), None);
    }

    #[test]
    fn ticks_may_wrap_between_the_two() {
        let before = FlowEntry { last_seen: u32::MAX - 5, ..ours() };
        assert_eq!(merged(&ours(), Some(&before)), Some(ours()));
        assert_eq!(merged(&before, Some(&ours())), None);
    }

    #[test]
    fn what_the_opposite_direction_adds_is_kept_from_both() {
        let replied = FlowEntry { flags: F_REPLIED, replied: 77, last_seen: 99, tcp: T_FIN, ..ours() };
        let both = FlowEntry { flags: F_REPLIED, replied: 77, tcp: T_SYN | T_FIN, ..ours() };
        assert_eq!(merged(&replied, Some(&ours())), Some(both));
        let newer = FlowEntry { last_seen: 200, ..ours() };
        assert_eq!(merged(&newer, Some(&replied)), Some(FlowEntry { last_seen: 200, ..both }));
    }

    #[test]
    fn a_key_opened_anew_takes_nothing_from_the_flow_before() {
        let anew = FlowEntry { created: 90, last_seen: 100, packets: 1, ..ours() };
        let over = FlowEntry { tcp: T_FIN, flags: F_REPLIED, last_seen: 95, ..ours() };
        assert_eq!(merged(&anew, Some(&over)), Some(anew));
        assert_eq!(merged(&over, Some(&anew)), None);
    }
}

//! DEL and GC.

use std::{collections::HashSet, time::Duration};

use osmia_cni::{
    protocol::{AttachmentKey, Failure, host_link_name},
    spec::error::code,
};

use super::{
    Attachments, failure,
    record::{Line, Tombstone},
};

/// Until a retired link is surely gone: the group delete comes within a second.
const LINK_GOES: Duration = Duration::from_secs(1);

impl Attachments {
    /// DEL. When this returns no packet of the endpoint passes and the journal says so. Success also where there is nothing.
    ///
    /// # Errors
    /// Something is left that has to be removed: maps or journal refused.
    pub async fn delete(&self, key: &AttachmentKey, started_ns: u64) -> Result<(), Failure> {
        let host_link = host_link_name(key);
        let _turn = self.locks.lock(&host_link).await;
        let tombstone = Tombstone { started_ns, until: self.clock.boot() + self.limits.tombstone };
        let found = {
            let mut state = self.state();
            match state.records.get(&host_link) {
                Some(record) if record.started_ns > started_ns => {
                    // A runtime that reuses ids (podman) went on to the next ADD: this DEL is not for it.
                    tracing::info!(attachment = %key, "a DEL that an ADD has overtaken");
                    return Ok(());
                }
                Some(_) => true,
                None => {
                    // In memory alone: a restart ends the calls that it is for.
                    state.tombstones.insert(host_link.clone(), tombstone);
                    false
                }
            }
        };
        if found {
            self.remove_locked(&host_link, Some(tombstone)).await?;
            tracing::info!(attachment = %key, "removed");
        } else {
            if let Some(ifindex) = self.link_of(&host_link)? {
                tracing::info!(attachment = %key, ifindex, "removing a link that no record knows");
                self.outside().links.retire(ifindex);
            }
        }
        self.compact_if_long().await;
        Ok(())
    }

    /// GC: removes the complete attachments of a network that are not in the list. Says all that failed together.
    ///
    /// An ADD that is being served is not judged: its container may be newer than the list.
    ///
    /// # Errors
    /// One line of all failures.
    pub async fn collect(&self, network: &str, valid: &[AttachmentKey]) -> Result<(), Failure> {
        let valid: HashSet<&AttachmentKey> = valid.iter().collect();
        let victims: Vec<(AttachmentKey, u64)> = {
            let state = self.state();
            let of_network =
                state.records.values().filter(|record| record.network == network && record.ifindex().is_some());
            of_network
                .filter_map(|record| Some((record.key.clone()?, record.started_ns)))
                .filter(|(key, _)| !valid.contains(key))
                .collect()
        };
        let mut failures = Vec::new();
        for (key, started_ns) in victims {
            tracing::info!(attachment = %key, network, "GC removes an attachment that the runtime does not know");
            if let Err(failure) = self.delete(&key, started_ns).await {
                failures.push(format!("{key}: {failure}"));
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(Failure::new(code::TRY_LATER, failures.join("; "))) }
    }

    /// Rows, then journal, then everything that can wait. The caller holds the attachment's turn.
    pub(super) async fn remove_locked(&self, host_link: &str, tombstone: Option<Tombstone>) -> Result<(), Failure> {
        let Some(record) = self.state().records.get(host_link).cloned() else { return Ok(()) };
        // By name: the recorded ifindex may be another device's since the namespace went. Before anything is changed: a link that cannot
        // be seen now would be nobody's later.
        let link = self.link_of(host_link)?;
        self.outside()
            .endpoints
            .remove(record.slot)
            .map_err(|e| failure::dataplane("removing the endpoint's rows", &e))?;
        // What no ADD ever gave to a pod nobody has talked to: only a completed one's addresses rest.
        let until = record.ifindex().map(|_| self.clock.boot() + LINK_GOES + self.limits.address_rest);
        let rest = until.iter().flat_map(|until| record.addresses.iter().map(|ip| (*ip, *until))).collect();
        let _gate = self.enter().await;
        // A record whose key was lost is in no journal.
        if record.key.is_some() || tombstone.is_some() {
            self.write(&Line::Gone { host_link: host_link.to_owned(), tombstone, rest })?;
        }
        {
            let mut outside = self.outside();
            if let Some(ifindex) = link {
                outside.links.retire(ifindex);
            }
            if let Some(publisher) = &mut outside.publisher {
                publisher.remove(&record);
            }
        }
        let mut state = self.state();
        if let Some(tombstone) = tombstone {
            state.tombstones.insert(host_link.to_owned(), tombstone);
        }
        state.remove(host_link, until);
        Ok(())
    }
}

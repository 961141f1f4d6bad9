//! What no DEL removes: attachments whose namespace is gone, links that nobody owns.
//!
//! Runtimes lose DELs for good in several ways, so this is no exception handling but the way such pods end. A veth goes with its
//! namespace, so a host link that stays away says that the namespace is gone; a pod that is merely gone from the API proves nothing.

use std::{
    collections::{BTreeMap, HashSet},
    os::unix::fs::MetadataExt,
    path::Path,
};

use super::{Attachments, record::Record, state::Suspect};

impl Attachments {
    /// Looks once; what has been garbage for long enough is removed. Says how much that was.
    pub async fn collect_garbage(&self) -> usize {
        self.retry_undoing().await;
        let now = self.clock.boot();
        let links = match self.outside().links.list() {
            Ok(links) => links,
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot list links");
                return 0;
            }
        };
        let ripe: Vec<Suspect> = {
            let mut state = self.state();
            let suspects = suspects(&state.records, &links);
            state.suspects.retain(|suspect, _| suspects.contains(suspect));
            for suspect in suspects {
                state.suspects.entry(suspect).or_insert(now);
            }
            let after = self.limits.garbage_after;
            state
                .suspects
                .iter()
                .filter(|(_, since)| now.saturating_sub(**since) >= after)
                .map(|(s, _)| s.clone())
                .collect()
        };
        let mut removed = 0;
        for suspect in ripe {
            removed += usize::from(self.remove_suspect(&suspect).await);
        }
        removed
    }

    /// ADDs that nobody waits for any more and that could not be undone.
    async fn retry_undoing(&self) {
        let left: Vec<String> = {
            let state = self.state();
            let adding = state.records.values().filter(|record| record.ifindex().is_none());
            adding.map(|record| &record.host_link).filter(|link| !state.sessions.contains_key(*link)).cloned().collect()
        };
        for host_link in left {
            let _turn = self.locks.lock(&host_link).await;
            let still = self.state().records.get(&host_link).is_some_and(|record| record.ifindex().is_none());
            if still && !self.state().sessions.contains_key(&host_link) {
                self.undo_locked(&host_link).await;
            }
        }
    }

    async fn remove_suspect(&self, suspect: &Suspect) -> bool {
        match suspect {
            Suspect::Record(host_link) => {
                let _turn = self.locks.lock(host_link).await;
                let Some(record) = self.state().records.get(host_link).cloned() else { return false };
                // Since it was listed an ADD may have replaced it.
                match self.link_of(host_link) {
                    Ok(None) => {}
                    Ok(Some(_)) => return false,
                    Err(error) => {
                        tracing::error!(attachment = %record.name(), %error, "cannot tell whether its link is gone");
                        return false;
                    }
                }
                if self.namespace_lives(&record) {
                    tracing::error!(attachment = %record.name(), "somebody removed its link: this pod has no network until it is made anew");
                } else {
                    let netns = &record.netns;
                    tracing::warn!(attachment = %record.name(), netns, "its namespace is gone and no DEL came: removed");
                }
                match self.remove_locked(host_link, None).await {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::error!(attachment = %record.name(), %error, "removing garbage");
                        false
                    }
                }
            }
            Suspect::Link(ifindex, name) => {
                let _turn = self.locks.lock(name).await;
                let known = self.state().known_links().contains(name.as_str());
                let outside = self.outside();
                // Where it cannot be asked for, the next round looks again.
                if known || outside.links.index_of(name).ok().flatten() != Some(*ifindex) {
                    return false;
                }
                tracing::warn!(link = name, ifindex, "a link of ours that no attachment owns: removed");
                outside.links.retire(*ifindex);
                true
            }
        }
    }
}

impl Attachments {
    /// Whether the pod's namespace is still the one its ADD named.
    pub(super) fn namespace_lives(&self, record: &Record) -> bool {
        let name = Path::new(&record.netns).file_name();
        let found = name.and_then(|name| std::fs::metadata(self.limits.netns.join(name)).ok());
        found.is_some_and(|meta| (meta.dev(), meta.ino()) == record.netns_id)
    }
}

fn suspects(records: &BTreeMap<String, Record>, links: &BTreeMap<u32, String>) -> HashSet<Suspect> {
    let gone = records
        .values()
        .filter(|record| record.ifindex().is_some_and(|ifindex| links.get(&ifindex) != Some(&record.host_link)));
    let ownerless = links.iter().filter(|(_, name)| !records.contains_key(*name));
    let gone = gone.map(|record| Suspect::Record(record.host_link.clone()));
    gone.chain(ownerless.map(|(ifindex, name)| Suspect::Link(*ifindex, name.clone()))).collect()
}

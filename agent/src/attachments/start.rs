//! Start: journal, kernel and queue become one state.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use osmia_cni::{
    protocol::PodRef,
    queue::{LockedQueue, Queue},
};
use osmia_maps::catalogue::PodName;
use tokio::time;

use super::{
    Attachments, Limits, NodeFacts, Outside,
    journal::Journal,
    key_locks::KeyLocks,
    known::{self, Difference, Names, Pods},
    reconcile::{self, Repair},
    record::{Phase, Record},
    slots::Slots,
    state::{Folded, State},
};
use crate::addresses::Addresses;

/// Plugins hold the queue's lock for one file each.
const QUEUE_LOCK: Duration = Duration::from_secs(10);
/// After a row was refused; each time twice as long.
const RETRY: Duration = Duration::from_secs(2);
/// No longer than this.
const RETRY_AT_MOST: Duration = Duration::from_secs(60);

impl Attachments {
    /// Reads the journal, compares it with rows, links and the source's pods, mends each difference and says it. `names` are the pods that the
    /// catalogue of policies knows of endpoints: those whose record was lost have their pod of it. Without `pods`, which the source has not
    /// told since its start, nothing is compared with them.
    ///
    /// # Errors
    /// Journal, maps or links cannot be read, or the journal is of another boot and cannot be replaced.
    pub async fn open(
        state_folder: &Path,
        boot_id: &str,
        facts: NodeFacts,
        pods: Option<&Pods>,
        names: &Names,
        outside: Outside,
        limits: Limits,
    ) -> Result<Arc<Self>> {
        let (journal, replay) = Journal::open(&state_folder.join("journal"))?;
        for damage in &replay.damage {
            tracing::error!(damage, "the journal is damaged; what the kernel knows is kept");
        }
        let lines = replay.lines.len();
        let folded = Folded::new(replay.lines, boot_id);
        if folded.other_boot > 0 {
            tracing::info!(
                attachments = folded.other_boot,
                "the machine was started anew: the journal's attachments are gone"
            );
        }
        let rows = outside.endpoints.list().context("cannot read the endpoint rows")?;
        let links = outside.links.list().context("cannot list links")?;
        let plan = reconcile::plan(&folded.records, &rows, &links);

        let used = folded.records.values().map(|record| record.slot).chain(rows.keys().copied());
        let mut state = State {
            slots: Slots::new(&used.collect::<BTreeSet<u32>>()),
            records: folded.records,
            sessions: std::collections::HashMap::new(),
            tombstones: folded.tombstones,
            addresses: Addresses::default(),
            rests: folded.rests,
            lines,
            suspects: std::collections::HashMap::new(),
            facts: NodeFacts::default(),
        };
        claim(&mut state);
        let (clock, told) = (Arc::clone(&outside.clock), outside.told.clone());
        let attachments = Arc::new(Self {
            state: Mutex::new(state),
            outside: Mutex::new(outside),
            clock,
            told,
            journal,
            locks: KeyLocks::default(),
            gate: tokio::sync::RwLock::new(()),
            limits,
            boot_id: boot_id.to_owned(),
        });
        attachments.set_facts(facts);
        let mut differences = 0;
        for repair in plan {
            differences += usize::from(!matches!(repair, Repair::Adopt(_)));
            attachments.mend(repair).await;
        }
        attachments.name_lost(names);
        // Before anything is published: an attachment that is named then keeps its status file.
        differences += pods.map_or(0, |pods| attachments.compare_with_source(pods));
        attachments.say_unknown();
        attachments.first_compaction(!folded.goes_on).await?;
        attachments.publish_all();
        let adopted = attachments.counts().added;
        tracing::info!(adopted, differences, "attachments agree with journal, kernel and source");
        Ok(attachments)
    }

    /// Gives those whose record was lost the name that the catalogue has of them.
    fn name_lost(&self, names: &Names) {
        for record in self.state().records.values_mut().filter(|record| record.lost_its_name()) {
            let slot = record.slot;
            match names.get(&slot) {
                // The name of one that was unknown before.
                Some(Some(pod)) if pod.name.is_empty() => record.unknown = true,
                Some(Some(PodName { namespace, name })) => {
                    tracing::warn!(
                        slot,
                        pod = format!("{namespace}/{name}"),
                        "its record was lost; the catalogue names it"
                    );
                    record.pod = PodRef { namespace: namespace.clone(), name: name.clone(), uid: String::new() };
                    record.unknown = false;
                }
                Some(None) => record.unknown = false,
                None => record.unknown = true,
            }
        }
    }

    fn say_unknown(&self) {
        for record in self.state().records.values().filter(|record| record.unknown) {
            tracing::error!(
                link = record.host_link,
                slot = record.slot,
                "its record was lost and nothing tells whose it is: isolated until its pod is made anew"
            );
        }
    }

    /// The source has told of all pods, which it had not at the start: what [`Self::open`] could not compare. Who has his name by it is judged
    /// by it when this returns; it tries until it can.
    pub async fn pods_told(&self, pods: Pods) {
        let mut lost: Vec<String> = {
            let state = self.state();
            state.records.values().filter(|record| record.unknown).map(|record| record.host_link.clone()).collect()
        };
        let differences = self.compare_with_source(&pods);
        // As many as the cluster has.
        drop(pods);
        self.publish_all();
        tracing::info!(differences, "attachments are compared with the source");
        let mut pause = RETRY;
        loop {
            let refused = self.put_named(&lost, pause == RETRY).await;
            if refused.is_empty() {
                break;
            }
            time::sleep(pause).await;
            pause = RETRY_AT_MOST.min(2 * pause);
            lost = refused;
        }
    }

    /// Writes the rows of those among these links whose pod is known; the links whose row was refused, which is said the `first` time.
    async fn put_named(&self, links: &[String], first: bool) -> Vec<String> {
        let mut refused = Vec::new();
        for host_link in links {
            let _turn = self.locks.lock(host_link).await;
            let record = self.state().records.get(host_link).filter(|record| !record.unknown).cloned();
            let Some(record) = record else { continue };
            let attachment = record.name();
            match self.put(&record) {
                Ok(()) if first => {}
                Ok(()) => tracing::info!(attachment, "it is judged as its pod"),
                Err(error) => {
                    if first {
                        let error = format!("{error:#}");
                        tracing::error!(attachment, error, "it stays isolated; tried again");
                    }
                    refused.push(host_link.clone());
                }
            }
        }
        refused
    }

    /// Says what the source knows otherwise; says how much. Nothing is cut off for it: see [`known`].
    fn compare_with_source(&self, pods: &Pods) -> usize {
        let mut state = self.state();
        let found = known::compare(&state.records, pods, &state.facts.name);
        for difference in &found {
            match difference {
                Difference::Named { host_link, pod } => {
                    let name = format!("{}/{}", pod.namespace, pod.name);
                    tracing::warn!(
                        link = host_link,
                        pod = name,
                        "its record was lost; it is this pod's by its address"
                    );
                    if let Some(record) = state.records.get_mut(host_link) {
                        record.pod = pod.clone();
                        record.unknown = false;
                    }
                }
                Difference::Otherwise { name, said } => {
                    tracing::warn!(
                        attachment = name,
                        said,
                        "the source knows it otherwise: kept until its DEL, or its namespace goes"
                    );
                }
                Difference::Unknown { pod } => {
                    tracing::warn!(
                        pod,
                        "it has addresses by the source and no attachment here: it has no network until its runtime makes it anew"
                    );
                }
            }
        }
        found.len()
    }

    async fn mend(&self, repair: Repair) {
        let result = match repair {
            Repair::Adopt(record) => self.adopt(&record),
            Repair::Restore(record) => {
                tracing::warn!(attachment = %record.name(), slot = record.slot, "its row was missing or wrong: written again");
                self.put(&record)
            }
            Repair::Undo(record) => {
                tracing::warn!(attachment = %record.name(), "its ADD was never completed: undone");
                self.remove_locked(&record.host_link, None).await.map_err(Into::into)
            }
            Repair::Forget(record) => {
                let netns = &record.netns;
                if self.namespace_lives(&record) {
                    tracing::error!(attachment = %record.name(), netns, "its link is gone and its namespace is not: removed; this pod has no network until it is made anew");
                } else {
                    tracing::warn!(attachment = %record.name(), netns, "its link and namespace are gone: removed");
                }
                self.remove_locked(&record.host_link, None).await.map_err(Into::into)
            }
            Repair::Keep { slot, row, host_link } => {
                tracing::warn!(link = host_link, slot, "a living pod without a record: kept until its DEL");
                self.keep(slot, row, host_link);
                Ok(())
            }
            Repair::RemoveRow { slot } => {
                tracing::warn!(slot, "a row that no pod stands behind: removed");
                let result = self.outside().endpoints.remove(slot);
                if result.is_ok() {
                    self.state().slots.give_back(slot);
                }
                result
            }
            Repair::RemoveLink { ifindex, host_link } => {
                tracing::warn!(link = host_link, ifindex, "a link of ours that nothing knows: removed");
                self.outside().links.retire(ifindex);
                Ok(())
            }
        };
        if let Err(error) = result {
            tracing::error!(error = format!("{error:#}"), "a difference stays; the next start tries again");
        }
    }

    fn adopt(&self, record: &Record) -> Result<()> {
        let Some(ifindex) = record.ifindex() else { return Ok(()) };
        let found = self.outside().endpoints.check(record.slot, &record.endpoint(ifindex));
        if let Err(why) = found {
            tracing::warn!(attachment = %record.name(), why = format!("{why:#}"), "attached again");
            return self.put(record);
        }
        Ok(())
    }

    fn put(&self, record: &Record) -> Result<()> {
        let Some(ifindex) = record.ifindex() else { return Ok(()) };
        self.outside().endpoints.put(record.slot, record.endpoint(ifindex), record.local())
    }

    fn keep(&self, slot: u32, row: osmia_maps::layout::Endpoint, host_link: String) {
        let v4 = (row.v4 != [0; 4]).then(|| IpAddr::from(Ipv4Addr::from(row.v4)));
        let v6 = (row.v6 != [0; 16]).then(|| IpAddr::from(Ipv6Addr::from(row.v6)));
        let addresses: Vec<IpAddr> = v4.into_iter().chain(v6).collect();
        let mut state = self.state();
        for ip in &addresses {
            state.addresses.claim(*ip);
        }
        let record = Record {
            key: None,
            host_link: host_link.clone(),
            network: String::new(),
            netns: String::new(),
            netns_id: (0, 0),
            pod: PodRef::default(),
            unknown: true,
            addresses,
            mtu: 0,
            pod_mac: row.mac,
            slot,
            started_ns: 0,
            phase: Phase::Added { ifindex: row.ifindex },
        };
        state.records.insert(host_link, record);
    }

    async fn first_compaction(&self, needed: bool) -> Result<()> {
        let lines = {
            let mut state = self.state();
            state.expire(self.clock.boot());
            let lines = state.lines(&self.boot_id);
            state.lines = lines.len();
            lines
        };
        match self.journal.rewrite(&lines).await {
            Err(error) if needed => {
                Err(error).context("the journal is of an earlier boot or empty, and cannot be begun anew")
            }
            Err(error) => {
                tracing::error!(%error, "the journal cannot be compacted");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn publish_all(&self) {
        let records: BTreeMap<String, Record> = self.state().records.clone();
        if let Some(publisher) = &mut self.outside().publisher {
            publisher.replace(records.values().filter(|record| record.ifindex().is_some()));
        }
    }

    /// Does the DELs that plugins queued while no agent served. The lock is given back: whoever calls keeps it until the socket listens,
    /// so that no plugin queues a DEL behind the drain.
    ///
    /// # Errors
    /// The queue cannot be locked or read.
    pub async fn drain(&self, state_folder: &Path) -> Result<LockedQueue> {
        let queue = Queue::in_state(state_folder);
        // Waits on a thread of its own: probes are answered meanwhile.
        let lock = tokio::task::spawn_blocking(move || queue.lock_exclusive(Instant::now() + QUEUE_LOCK));
        let locked = lock.await?.context("cannot drain the queue of DELs")?;
        locked.remove_unfinished().context("cannot drain the queue of DELs")?;
        for found in locked.entries().context("cannot drain the queue of DELs")? {
            match &found.entry {
                Ok(entry) if entry.boot_id != self.boot_id => {
                    tracing::info!(attachment = %entry.key, "a queued DEL of an earlier boot: nothing is left of it");
                }
                Ok(entry) => {
                    tracing::info!(attachment = %entry.key, "a DEL that came while no agent served");
                    if let Err(error) = self.delete(&entry.key, entry.started_ns).await {
                        // Stays in the queue for the next start.
                        tracing::error!(attachment = %entry.key, %error, "queued DEL failed");
                        continue;
                    }
                }
                Err(why) => {
                    tracing::error!(file = %found.file.display(), why, "dropped a damaged DEL; the pod goes as garbage")
                }
            }
            locked.remove(&found).context("cannot drain the queue of DELs")?;
        }
        Ok(locked)
    }
}

/// Addresses of records are in use, those that rest do so on.
fn claim(state: &mut State) {
    for (ip, until) in &state.rests {
        if state.addresses.claim(*ip) {
            state.addresses.release(*ip, *until);
        }
    }
    for record in state.records.values() {
        for ip in &record.addresses {
            if !state.addresses.claim(*ip) {
                tracing::error!(address = %ip, attachment = %record.name(), "two attachments have this address");
            }
        }
    }
}

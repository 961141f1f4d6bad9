//! ADD: reserve, then (the plugin builds the link) commit; abandon in every other case.

use std::os::fd::{AsFd, OwnedFd};

use osmia_cni::{
    protocol::{Assignment, AttachmentKey, Failure, PodRef, host_link_name},
    spec::error::code,
};
use osmia_maps::layout::maps::MAX_ENDPOINTS;
use tokio::time;

use super::{
    Attachments, failure,
    record::{Line, Phase, Record, parse_mac, pod_mac},
    state::State,
};
use crate::compile::policy::Local;

/// `NSFS_MAGIC` of linux/magic.h.
const NSFS: u64 = 0x6e73_6673;

/// What an ADD asks for.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The attachment.
    pub key: AttachmentKey,
    /// Network name.
    pub network: String,
    /// CNI_NETNS as given.
    pub netns: String,
    /// The pod.
    pub pod: PodRef,
    /// When its process started, CLOCK_BOOTTIME in ns.
    pub started_ns: u64,
}

/// Device and inode of a network namespace handed over by the plugin.
///
/// # Errors
/// It is none, or it is the agent's own.
pub fn netns_id(fd: &OwnedFd) -> Result<(u64, u64), Failure> {
    let io = |what: &str, e: rustix::io::Errno| Failure::new(code::IO, format!("{what}: {e}"));
    let fs = rustix::fs::fstatfs(fd).map_err(|e| io("looking at CNI_NETNS", e))?;
    if fs.f_type.cast_unsigned() != NSFS {
        return Err(Failure::new(code::ENVIRONMENT, "CNI_NETNS is no network namespace"));
    }
    let stat = rustix::fs::fstat(fd.as_fd()).map_err(|e| io("looking at CNI_NETNS", e))?;
    let own = rustix::fs::stat("/proc/self/ns/net").map_err(|e| io("looking at the agent's own namespace", e))?;
    if (stat.st_dev, stat.st_ino) == (own.st_dev, own.st_ino) {
        return Err(Failure::new(code::OWN_NAMESPACE, "CNI_NETNS is the node's own network namespace"));
    }
    Ok((stat.st_dev, stat.st_ino))
}

impl Attachments {
    /// First half. In the journal when this returns; nothing was made.
    ///
    /// # Errors
    /// It exists, a later DEL came, nothing is free, or the journal cannot be written. Nothing is held then.
    pub async fn reserve(&self, session: u64, wish: Wish, netns_id: (u64, u64)) -> Result<Assignment, Failure> {
        let host_link = host_link_name(&wish.key);
        let _turn = self.locks.lock(&host_link).await;
        let link = self.link_of(&host_link)?;
        let stale = {
            let state = self.state();
            if state.tombstones.get(&host_link).is_some_and(|tombstone| tombstone.started_ns >= wish.started_ns) {
                return Err(failure::overtaken(&wish.key));
            }
            match state.records.get(&host_link) {
                None => false,
                Some(record) => match record.ifindex() {
                    None => return Err(failure::busy(record)),
                    // The same namespace with a living link: an ADD without DEL. Anything else is what is left of an earlier container.
                    Some(ifindex) if link == Some(ifindex) && (record.netns_id == netns_id || record.key.is_none()) => {
                        return Err(failure::exists(record));
                    }
                    Some(_) => true,
                },
            }
        };
        if stale {
            tracing::info!(attachment = %wish.key, "an ADD replaces what is left of an earlier one");
            self.remove_locked(&host_link, None).await?;
        }
        if let Some(ifindex) = link {
            tracing::info!(attachment = %wish.key, ifindex, "removing a link that an earlier ADD left");
            self.outside().links.delete(ifindex).map_err(|e| failure::dataplane("removing an old link", &e))?;
        }
        let _gate = self.enter().await;
        let record = self.take(session, wish, netns_id, host_link)?;
        if let Err(failure) = self.write(&Line::Put(record.clone())) {
            self.state().remove(&record.host_link, None);
            return Err(failure);
        }
        tracing::debug!(attachment = %record.name(), slot = record.slot, "reserved");
        Ok(record.assignment())
    }

    /// Takes addresses and a slot and enters the record.
    fn take(&self, session: u64, wish: Wish, netns_id: (u64, u64), host_link: String) -> Result<Record, Failure> {
        let now = self.clock.boot();
        let mut state = self.state();
        let State { addresses, slots, facts, .. } = &mut *state;
        let slot = slots.take().ok_or_else(|| failure::no_slot(MAX_ENDPOINTS as usize - 1))?;
        let addresses = match addresses.allocate(&facts.name, facts.ipv6, now) {
            Ok(addresses) => addresses,
            Err(error) => {
                slots.give_back(slot);
                tracing::error!(%error, "ADD refused");
                return Err(failure::no_address(&error));
            }
        };
        let record = Record {
            pod_mac: pod_mac(&addresses),
            key: Some(wish.key),
            host_link: host_link.clone(),
            network: wish.network,
            netns: wish.netns,
            netns_id,
            pod: wish.pod,
            unknown: false,
            addresses,
            mtu: u32::from(facts.pod_mtu),
            slot,
            started_ns: wish.started_ns,
            phase: Phase::Adding,
        };
        state.records.insert(host_link.clone(), record.clone());
        state.sessions.insert(host_link, session);
        Ok(record)
    }

    /// Second half: the link is there. Packets pass and the journal says so when this returns.
    ///
    /// # Errors
    /// It was undone meanwhile, or programs, maps or journal refused; everything is undone then.
    pub async fn commit(&self, session: u64, key: &AttachmentKey, mac: &str, ifindex: u32) -> Result<(), Failure> {
        let host_link = host_link_name(key);
        // Without the attachment's turn: a DEL waits for nobody.
        let told = self.await_pod(session, &host_link, ifindex).await;
        let _turn = self.locks.lock(&host_link).await;
        let mut record = {
            let state = self.state();
            let own = state.sessions.get(&host_link) == Some(&session);
            let record = state.records.get(&host_link).filter(|record| own && record.ifindex().is_none());
            record.cloned().ok_or_else(|| failure::not_reserved(key))?
        };
        let done = {
            let _gate = self.enter().await;
            let done = told.and_then(|()| self.complete(&mut record, mac, ifindex));
            if done.is_ok() {
                let mut state = self.state();
                state.sessions.remove(&host_link);
                state.records.insert(host_link.clone(), record.clone());
            }
            done
        };
        match done {
            Ok(()) => {
                if let Some(publisher) = &mut self.outside().publisher {
                    publisher.put(&record);
                }
                let addresses = &record.addresses;
                tracing::info!(attachment = %key, pod = %pod(&record), ?addresses, slot = record.slot, ifindex, "added");
                self.compact_if_long().await;
                Ok(())
            }
            Err(failure) => {
                tracing::error!(attachment = %key, error = %failure, "ADD failed and is undone");
                self.undo_locked(&host_link).await;
                Err(failure)
            }
        }
    }

    /// Waits until the source has told of an ADD's pod, where policy may isolate it: its first packet is to be judged by what it is. After
    /// [`super::Limits::pod_wait`] it goes on as one of which nothing is known, and is judged again when it is told.
    ///
    /// # Errors
    /// The link, which is up, cannot be kept shut meanwhile.
    async fn await_pod(&self, session: u64, host_link: &str, ifindex: u32) -> Result<(), Failure> {
        let local = {
            let state = self.state();
            let own = state.sessions.get(host_link) == Some(&session);
            state.records.get(host_link).filter(|_| own).map(Record::local)
        };
        let Some(local @ Local { pod: Some(pod), .. }) = &local else { return Ok(()) };
        let mut told = self.told.clone();
        let mut guarded = false;
        let until = time::Instant::now() + self.limits.pod_wait;
        loop {
            told.mark_unchanged();
            if !self.outside().endpoints.awaits(local) {
                return Ok(());
            }
            if !guarded {
                // Without programs its packets would reach the node's stack.
                self.is_link(host_link, ifindex)?;
                let guard = self.outside().endpoints.guard(ifindex);
                guard.map_err(|e| failure::dataplane("attaching the pod", &e))?;
                guarded = true;
            }
            match time::timeout_at(until, told.changed()).await {
                Ok(Ok(())) => {}
                // The agent stops.
                Ok(Err(_)) => return Ok(()),
                Err(_) => break,
            }
        }
        let waited = self.limits.pod_wait;
        tracing::warn!(
            %pod,
            ?waited,
            "the source has not told of it: isolated until it does"
        );
        Ok(())
    }

    /// Only a link of the plugin's is touched, under the number that the plugin says.
    fn is_link(&self, host_link: &str, ifindex: u32) -> Result<(), Failure> {
        if self.link_of(host_link)? != Some(ifindex) {
            let text = format!("the plugin's link {ifindex} is not {host_link}");
            return Err(Failure::new(code::TRY_LATER, text));
        }
        Ok(())
    }

    fn complete(&self, record: &mut Record, mac: &str, ifindex: u32) -> Result<(), Failure> {
        let pod_mac = parse_mac(mac).ok_or_else(|| Failure::new(code::DECODE, format!("{mac:?} is no MAC address")))?;
        record.pod_mac = pod_mac;
        record.phase = Phase::Added { ifindex };
        self.is_link(&record.host_link, ifindex)?;
        let put = self.outside().endpoints.put(record.slot, record.endpoint(ifindex), record.local());
        put.map_err(|e| failure::dataplane("attaching the pod", &e))?;
        self.write(&Line::Commit { host_link: record.host_link.clone(), ifindex, pod_mac })
    }

    /// Undoes an ADD of this session that was not committed: its caller is gone or its time is up. Nothing to do is fine.
    pub async fn abandon(&self, session: u64, key: &AttachmentKey, why: &str) {
        let host_link = host_link_name(key);
        let _turn = self.locks.lock(&host_link).await;
        let own = self.state().sessions.get(&host_link) == Some(&session);
        if own {
            tracing::warn!(attachment = %key, why, "ADD undone");
            self.undo_locked(&host_link).await;
        }
    }

    /// Undoes an ADD. Where the journal cannot say so (a full disk) its addresses stay taken, and it is tried again with the garbage.
    pub(super) async fn undo_locked(&self, host_link: &str) {
        if let Err(error) = self.remove_locked(host_link, None).await {
            tracing::error!(link = host_link, %error, "an ADD is not undone yet; tried again");
            self.state().sessions.remove(host_link);
        }
    }
}

fn pod(record: &Record) -> String {
    if record.pod.name.is_empty() { "-".to_owned() } else { format!("{}/{}", record.pod.namespace, record.pod.name) }
}

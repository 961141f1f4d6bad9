//! Maps and links that remember, and a clock that stands still: what an agent under test stands on.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, bail};
use osmia_cni::protocol::{AttachmentKey, host_link_name};
use osmia_maps::layout::Endpoint;
use tempfile::TempDir;
use tokio::sync::watch;

use super::{
    Attachments, Limits, NodeFacts, Outside,
    known::{Names, Pods},
    outside::{Endpoints, Links},
};
use crate::{clock::Clock, compile::policy::Local, model::Name, publish::Publisher};

/// The kernel: it outlives agents.
#[derive(Clone, Default)]
pub(crate) struct Kernel(Arc<Mutex<Inner>>);

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) rows: BTreeMap<u32, Endpoint>,
    /// Whose each row is.
    pub(crate) pods: BTreeMap<u32, Option<Name>>,
    /// Links with programs and without rows.
    pub(crate) guarded: Vec<u32>,
    /// The source has told of no pod.
    pub(crate) untold: bool,
    pub(crate) links: BTreeMap<u32, String>,
    pub(crate) retired: Vec<u32>,
    pub(crate) refuse_rows: bool,
    pub(crate) refuse_looks: bool,
    pub(crate) next_ifindex: u32,
}

impl Kernel {
    pub(crate) fn get(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// What the plugin does between reserve and commit.
    pub(crate) fn build(&self, key: &AttachmentKey) -> u32 {
        let mut inner = self.get();
        inner.next_ifindex += 1;
        let ifindex = 100 + inner.next_ifindex;
        inner.links.insert(ifindex, host_link_name(key));
        ifindex
    }

    /// The thread that removes links.
    pub(crate) fn sweep(&self) {
        let mut inner = self.get();
        for ifindex in std::mem::take(&mut inner.retired) {
            inner.links.remove(&ifindex);
        }
    }
}

impl Endpoints for Kernel {
    fn put(&mut self, slot: u32, endpoint: Endpoint, local: Local) -> Result<()> {
        let mut inner = self.get();
        if inner.refuse_rows {
            bail!("the map is full");
        }
        inner.rows.insert(slot, endpoint);
        inner.pods.insert(slot, local.pod);
        Ok(())
    }

    fn guard(&mut self, ifindex: u32) -> Result<()> {
        let mut inner = self.get();
        if inner.refuse_rows {
            bail!("the link is gone");
        }
        inner.guarded.push(ifindex);
        Ok(())
    }

    fn awaits(&self, _: &Local) -> bool {
        self.get().untold
    }

    fn remove(&mut self, slot: u32) -> Result<()> {
        self.get().rows.remove(&slot);
        Ok(())
    }

    fn list(&self) -> Result<BTreeMap<u32, Endpoint>> {
        Ok(self.get().rows.clone())
    }

    fn check(&self, slot: u32, endpoint: &Endpoint) -> Result<()> {
        if self.get().rows.get(&slot) == Some(endpoint) { Ok(()) } else { bail!("slot {slot} holds something else") }
    }
}

impl Links for Kernel {
    fn list(&self) -> Result<BTreeMap<u32, String>> {
        Ok(self.get().links.clone())
    }

    fn index_of(&self, name: &str) -> Result<Option<u32>> {
        let inner = self.get();
        if inner.refuse_looks {
            bail!("too many open files");
        }
        Ok(inner.links.iter().find(|(_, link)| *link == name).map(|(ifindex, _)| *ifindex))
    }

    fn retire(&self, ifindex: u32) {
        self.get().retired.push(ifindex);
    }

    fn delete(&self, ifindex: u32) -> Result<()> {
        self.get().links.remove(&ifindex);
        Ok(())
    }
}

#[derive(Clone, Default)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn boot(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        self.boot()
    }

    fn wall(&self) -> std::time::SystemTime {
        std::time::UNIX_EPOCH + self.boot()
    }
}

pub(crate) struct Node {
    pub(crate) state: TempDir,
    pub(crate) publish: TempDir,
    pub(crate) kernel: Kernel,
    pub(crate) clock: TestClock,
    pub(crate) boot: &'static str,
    pub(crate) ranges: Vec<&'static str>,
    pub(crate) pods: Pods,
    pub(crate) names: Names,
    pub(crate) told: watch::Sender<()>,
}

impl Node {
    pub(crate) fn new() -> Self {
        let clock = TestClock::default();
        clock.advance(Duration::from_secs(100));
        Self {
            // In memory: these tests cut and replay thousands of times.
            state: TempDir::new_in("/dev/shm").unwrap(),
            publish: TempDir::new().unwrap(),
            kernel: Kernel::default(),
            clock,
            boot: "boot-1",
            ranges: vec!["10.1.0.0/24", "fd00:1::/64"],
            pods: Pods::new(),
            names: Names::new(),
            told: watch::Sender::default(),
        }
    }

    /// A start of the agent; the one before is as dead as after kill -9.
    pub(crate) async fn agent(&self) -> Arc<Attachments> {
        self.try_agent().await.unwrap()
    }

    pub(crate) async fn try_agent(&self) -> Result<Arc<Attachments>> {
        let outside = Outside {
            endpoints: Box::new(self.kernel.clone()),
            links: Box::new(self.kernel.clone()),
            publisher: Some(Publisher::new(self.publish.path(), "n")),
            clock: Arc::new(self.clock.clone()),
            told: self.told.subscribe(),
        };
        let facts = NodeFacts {
            name: "n".into(),
            pod_cidrs: self.ranges.iter().map(|range| range.parse().unwrap()).collect(),
            pod_mtu: 1450,
            ipv6: true,
        };
        Attachments::open(
            self.state.path(),
            self.boot,
            facts,
            Some(&self.pods),
            &self.names,
            outside,
            Limits::default(),
        )
        .await
    }

    pub(crate) fn published(&self) -> usize {
        std::fs::read_dir(self.publish.path().join("status")).map_or(0, Iterator::count)
    }
}

//! The state folder on a disk that gets full.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use osmia_agent::{
    attachments::{
        Attachments, Limits, NodeFacts, Outside, Wish, failure,
        outside::{Endpoints, Links},
    },
    clock::SystemClock,
    compile::policy::Local,
};
use osmia_cni::protocol::{AttachmentKey, PodRef, host_link_name};
use osmia_maps::layout::Endpoint;
use rustix::mount::{MountFlags, mount};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::space;

/// Rows and links that are there as soon as somebody says so.
#[derive(Clone, Default)]
struct Kernel(Arc<Mutex<There>>);

#[derive(Default)]
struct There {
    rows: BTreeMap<u32, Endpoint>,
    links: BTreeMap<u32, String>,
}

impl Endpoints for Kernel {
    fn put(&mut self, slot: u32, endpoint: Endpoint, _: Local) -> anyhow::Result<()> {
        self.0.lock().unwrap().rows.insert(slot, endpoint);
        Ok(())
    }

    fn guard(&mut self, _: u32) -> anyhow::Result<()> {
        Ok(())
    }

    fn awaits(&self, _: &Local) -> bool {
        false
    }

    fn remove(&mut self, slot: u32) -> anyhow::Result<()> {
        self.0.lock().unwrap().rows.remove(&slot);
        Ok(())
    }

    fn list(&self) -> anyhow::Result<BTreeMap<u32, Endpoint>> {
        Ok(self.0.lock().unwrap().rows.clone())
    }

    fn check(&self, _slot: u32, _endpoint: &Endpoint) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Links for Kernel {
    fn list(&self) -> anyhow::Result<BTreeMap<u32, String>> {
        Ok(self.0.lock().unwrap().links.clone())
    }

    fn index_of(&self, name: &str) -> anyhow::Result<Option<u32>> {
        Ok(self.0.lock().unwrap().links.iter().find(|(_, link)| *link == name).map(|(ifindex, _)| *ifindex))
    }

    fn retire(&self, ifindex: u32) {
        self.0.lock().unwrap().links.remove(&ifindex);
    }

    fn delete(&self, ifindex: u32) -> anyhow::Result<()> {
        self.retire(ifindex);
        Ok(())
    }
}

fn wish(id: usize) -> Wish {
    Wish {
        key: AttachmentKey::new(format!("c{id}"), "eth0").unwrap(),
        network: "osmia".into(),
        netns: "/run/netns/x".into(),
        pod: PodRef::default(),
        started_ns: 1,
    }
}

async fn open(state: &Path, kernel: &Kernel) -> Arc<Attachments> {
    let outside = Outside {
        endpoints: Box::new(kernel.clone()),
        links: Box::new(kernel.clone()),
        publisher: None,
        clock: Arc::new(SystemClock),
        told: watch::channel(()).1,
    };
    let facts =
        NodeFacts { name: "n".into(), pod_cidrs: vec!["10.1.0.0/24".parse().unwrap()], pod_mtu: 1500, ipv6: false };
    Attachments::open(state, "boot", facts, Some(&Default::default()), &Default::default(), outside, Limits::default())
        .await
        .unwrap()
}

/// Takes all room; what is written into pages that files have already still fits.
fn fill(state: &Path) {
    let mut size = 1 << 20;
    let mut bytes = Vec::new();
    while size > 0 {
        let more = vec![1; bytes.len() + size];
        if fs::write(state.join("filler"), &more).is_ok() {
            bytes = more;
        } else {
            size /= 2;
        }
    }
}

#[test]
fn a_full_disk_refuses_an_add_at_either_step_and_leaves_nothing_of_it() {
    let test = || {
        space::enter();
        let state = TempDir::new().unwrap();
        mount("tmpfs", state.path(), "tmpfs", MountFlags::empty(), Some(c"size=64k")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(steps(state.path()));
        rustix::mount::unmount(state.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    };
    thread::spawn(test).join().unwrap();
}

async fn steps(state: &Path) {
    let kernel = Kernel::default();
    let agent = open(state, &kernel).await;
    fill(state);
    // The journal's last page takes a few lines more.
    let mut reserved = Vec::new();
    let refused = loop {
        match agent.reserve(1, wish(reserved.len()), (4, 5)).await {
            Ok(assignment) => reserved.push(assignment),
            Err(failure) => break failure,
        }
        assert!(reserved.len() < 50, "the disk is not full");
    };
    assert_eq!(refused.code, failure::JOURNAL);
    assert!(refused.message.contains("no space left") && refused.message.contains("journal"), "{refused}");
    assert_eq!(agent.counts().adding, reserved.len(), "nothing is held for the refused one");

    // The second step of those that were reserved: some still fit, then one does not.
    let mut added = 0;
    for (id, assignment) in reserved.iter().enumerate() {
        let key = wish(id).key;
        let ifindex = 100 + id as u32;
        kernel.0.lock().unwrap().links.insert(ifindex, host_link_name(&key));
        match agent.commit(1, &key, &assignment.pod_mac, ifindex).await {
            Ok(()) => added += 1,
            Err(failure) => assert_eq!(failure.code, failure::JOURNAL, "{failure}"),
        }
    }
    assert!(added < reserved.len(), "the disk is not full");
    assert_eq!(kernel.0.lock().unwrap().rows.len(), added, "no row of an ADD that failed");

    // Room again: what could not be said is said, and the next ADD works.
    fs::remove_file(state.join("filler")).unwrap();
    agent.collect_garbage().await;
    let counts = agent.counts();
    assert_eq!((counts.added, counts.adding), (added, 0));
    agent.reserve(2, wish(1000), (4, 5)).await.unwrap();
    drop(agent);
    // And the journal is whole.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let counts = open(state, &kernel).await.counts();
    assert_eq!((counts.added, counts.adding), (added, 0));
}

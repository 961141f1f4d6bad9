//! Against fakes of maps and links that remember, and a clock that stands still.

use std::net::IpAddr;

use anyhow::Result;
use osmia_cni::{
    protocol::{AttachmentKey, PodRef, host_link_name},
    queue::{Entry, Queue},
    spec::error::code,
};
use osmia_maps::catalogue::PodName;

use super::{
    fake::{Kernel, Node},
    record::parse_mac,
    *,
};
use crate::model::{Name, PodObject};

mod disk;
mod untold;

const NETNS: (u64, u64) = (4, 100);
const MAC: &str = "02:70:0a:01:00:02";

fn key(id: &str) -> AttachmentKey {
    AttachmentKey::new(id, "eth0").unwrap()
}

fn wish(id: &str, started_ns: u64) -> Wish {
    Wish {
        key: key(id),
        network: "osmia".into(),
        netns: "/run/netns/x".into(),
        pod: PodRef { namespace: "ns".into(), name: format!("pod-{id}"), uid: String::new() },
        started_ns,
    }
}

async fn add(agent: &Attachments, node: &Node, id: &str, started_ns: u64) -> Result<Vec<IpAddr>, Failure> {
    let assignment = agent.reserve(1, wish(id, started_ns), NETNS).await?;
    let ifindex = node.kernel.build(&key(id));
    agent.commit(1, &key(id), MAC, ifindex).await?;
    Ok(assignment.addresses)
}

#[tokio::test]
async fn add_and_del() {
    let node = Node::new();
    let agent = node.agent().await;
    let assignment = agent.reserve(1, wish("c1", 1), NETNS).await.unwrap();
    assert_eq!(assignment.host_link, host_link_name(&key("c1")));
    assert_eq!(assignment.addresses, ["10.1.0.2".parse::<IpAddr>().unwrap(), "fd00:1::2".parse().unwrap()]);
    assert_eq!((assignment.mtu, parse_mac(&assignment.gateway_mac)), (1450, Some(crate::compile::GATEWAY_MAC)));
    assert!(node.kernel.get().rows.is_empty(), "nothing passes before the commit");
    let ifindex = node.kernel.build(&key("c1"));
    agent.commit(1, &key("c1"), MAC, ifindex).await.unwrap();
    let row = *node.kernel.get().rows.values().next().unwrap();
    assert_eq!((row.ifindex, row.v4, row.mac), (ifindex, [10, 1, 0, 2], parse_mac(MAC).unwrap()));
    assert_eq!(agent.check(&key("c1")).await.unwrap().pod_mac, MAC);
    assert_eq!(node.published(), 1);

    agent.delete(&key("c1"), 2).await.unwrap();
    assert!(node.kernel.get().rows.is_empty());
    assert_eq!((node.kernel.get().retired.as_slice(), node.published()), ([ifindex].as_slice(), 0));
    assert_eq!(agent.check(&key("c1")).await.unwrap_err().code, code::DIFFERS);
    for _ in 0..3 {
        agent.delete(&key("c1"), 2).await.unwrap();
        agent.delete(&key("never"), 2).await.unwrap();
    }
    assert_eq!(agent.counts(), Counts { added: 0, adding: 0, free_slots: 1023 });
}

#[tokio::test]
async fn an_add_without_del_is_refused_and_hurts_nothing() {
    let node = Node::new();
    let agent = node.agent().await;
    add(&agent, &node, "c1", 1).await.unwrap();
    let rows = node.kernel.get().rows.clone();
    let failure = agent.reserve(2, wish("c1", 2), NETNS).await.unwrap_err();
    assert_eq!(failure.code, code::EXISTS);
    assert!(failure.message.contains("10.1.0.2"), "{failure}");
    assert_eq!(node.kernel.get().rows, rows);
    // While one is being served the second waits for nothing and breaks nothing.
    agent.reserve(3, wish("c2", 1), NETNS).await.unwrap();
    assert_eq!(agent.reserve(4, wish("c2", 1), NETNS).await.unwrap_err().code, code::TRY_LATER);
    assert_eq!(agent.commit(4, &key("c2"), MAC, 1).await.unwrap_err().code, code::TRY_LATER, "another's reservation");
    let ifindex = node.kernel.build(&key("c2"));
    agent.commit(3, &key("c2"), MAC, ifindex).await.unwrap();
}

#[tokio::test]
async fn another_namespace_under_the_same_key_gets_fresh_addresses() {
    let node = Node::new();
    let agent = node.agent().await;
    let first = add(&agent, &node, "c1", 1).await.unwrap();
    let second = agent.reserve(2, wish("c1", 2), (4, 101)).await.unwrap();
    assert_ne!(first, second.addresses);
    assert!(node.kernel.get().rows.is_empty());
    assert!(
        node.kernel.index_of(&host_link_name(&key("c1"))).unwrap().is_none(),
        "the old link is gone before the new one is built"
    );
}

#[tokio::test]
async fn a_cancelled_add_is_undone_whole() {
    let node = Node::new();
    let agent = node.agent().await;
    agent.reserve(1, wish("c1", 1), NETNS).await.unwrap();
    let ifindex = node.kernel.build(&key("c1"));
    agent.abandon(2, &key("c1"), "not its own").await;
    assert_eq!(agent.counts().adding, 1);
    agent.abandon(1, &key("c1"), "its caller went").await;
    assert_eq!(agent.counts(), Counts { added: 0, adding: 0, free_slots: 1023 });
    assert_eq!(node.kernel.get().retired, [ifindex]);
    assert_eq!(agent.commit(1, &key("c1"), MAC, ifindex).await.unwrap_err().code, code::TRY_LATER);
    // A complete one is not its connection's any more.
    add(&agent, &node, "c2", 1).await.unwrap();
    agent.abandon(1, &key("c2"), "answer sent").await;
    assert_eq!(agent.counts().added, 1);
}

#[tokio::test]
async fn a_del_beats_adds_that_started_before_it_and_no_later_ones() {
    let node = Node::new();
    let agent = node.agent().await;
    // While it is being served.
    agent.reserve(1, wish("c1", 10), NETNS).await.unwrap();
    let ifindex = node.kernel.build(&key("c1"));
    agent.delete(&key("c1"), 20).await.unwrap();
    assert_eq!(agent.commit(1, &key("c1"), MAC, ifindex).await.unwrap_err().code, code::TRY_LATER);
    // Before it came.
    assert_eq!(agent.reserve(2, wish("c1", 15), NETNS).await.unwrap_err().code, code::TRY_LATER);
    agent.delete(&key("c2"), 20).await.unwrap();
    assert_eq!(agent.reserve(3, wish("c2", 19), NETNS).await.unwrap_err().code, code::TRY_LATER);
    // podman reuses ids: DEL, then ADD.
    node.kernel.sweep();
    add(&agent, &node, "c1", 21).await.unwrap();
    // And a DEL that was overtaken by the ADD after it changes nothing.
    agent.delete(&key("c1"), 20).await.unwrap();
    assert_eq!(agent.counts().added, 1);
    // The tombstone outlives the agent, and ends.
    agent.delete(&key("c1"), 30).await.unwrap();
    node.kernel.sweep();
    let agent = node.agent().await;
    assert!(agent.reserve(4, wish("c1", 29), NETNS).await.is_err());
    node.clock.advance(Limits::default().tombstone);
    let agent = node.agent().await;
    agent.reserve(5, wish("c1", 29), NETNS).await.unwrap();
}

#[tokio::test]
async fn what_fails_half_way_leaves_nothing() {
    let node = Node::new();
    let agent = node.agent().await;
    node.kernel.get().refuse_rows = true;
    let failure = add(&agent, &node, "c1", 1).await.unwrap_err();
    assert!(failure.code == failure::DATAPLANE && failure.message.contains("the map is full"), "{failure}");
    assert_eq!(agent.counts(), Counts { added: 0, adding: 0, free_slots: 1023 });
    node.kernel.get().refuse_rows = false;
    node.kernel.sweep();
    // The link the plugin names is not the one it was told to build.
    agent.reserve(1, wish("c2", 1), NETNS).await.unwrap();
    let other = node.kernel.build(&key("other"));
    assert!(agent.commit(1, &key("c2"), MAC, other).await.is_err());
    assert_eq!(agent.counts().adding, 0);
    assert_eq!(agent.reserve(1, wish("c3", 1), NETNS).await.unwrap().addresses.len(), 2);
}

#[tokio::test]
async fn a_released_address_rests_over_a_restart_too() {
    let mut node = Node::new();
    node.ranges = vec!["10.1.0.0/30"];
    let agent = node.agent().await;
    let first = add(&agent, &node, "c1", 1).await.unwrap();
    add(&agent, &node, "c2", 1).await.unwrap();
    agent.delete(&key("c1"), 2).await.unwrap();
    node.kernel.sweep();
    let failure = agent.reserve(9, wish("c3", 3), NETNS).await.unwrap_err();
    assert!(failure.code == failure::EXHAUSTED && failure.message.contains("10.1.0.0/30"), "{failure}");
    let agent = node.agent().await;
    assert!(agent.reserve(9, wish("c3", 3), NETNS).await.is_err());
    node.clock.advance(Limits::default().address_rest + Duration::from_secs(1));
    assert_eq!(agent.reserve(9, wish("c3", 3), NETNS).await.unwrap().addresses, first);
}

#[tokio::test]
async fn an_undone_adds_addresses_do_not_rest() {
    let mut node = Node::new();
    node.ranges = vec!["10.1.0.0/30"];
    let agent = node.agent().await;
    for session in 0..8 {
        agent.reserve(session, wish("c1", 1), NETNS).await.unwrap();
        agent.abandon(session, &key("c1"), "its caller went").await;
    }
}

#[tokio::test]
async fn a_link_that_cannot_be_looked_for_is_not_taken_for_gone() {
    let node = Node::new();
    let agent = node.agent().await;
    add(&agent, &node, "c1", 1).await.unwrap();
    let rows = node.kernel.get().rows.clone();
    node.kernel.get().refuse_looks = true;
    let failure = agent.reserve(9, wish("c1", 2), NETNS).await.unwrap_err();
    assert!(failure.code == code::TRY_LATER && failure.message.contains("too many open files"), "{failure}");
    assert_eq!(agent.check(&key("c1")).await.unwrap_err().code, code::TRY_LATER);
    assert_eq!(agent.delete(&key("c1"), 3).await.unwrap_err().code, code::TRY_LATER);
    // Garbage, as far as the list of links says.
    let links = std::mem::take(&mut node.kernel.get().links);
    agent.collect_garbage().await;
    node.clock.advance(Limits::default().garbage_after);
    assert_eq!(agent.collect_garbage().await, 0);
    node.kernel.get().links = links;
    node.kernel.get().refuse_looks = false;
    assert_eq!((&node.kernel.get().rows, agent.counts().added), (&rows, 1));
    agent.check(&key("c1")).await.unwrap();
    agent.delete(&key("c1"), 3).await.unwrap();
}

#[tokio::test]
async fn a_node_without_range_says_so() {
    let mut node = Node::new();
    node.ranges = vec![];
    let agent = node.agent().await;
    let failure = agent.reserve(1, wish("c1", 1), NETNS).await.unwrap_err();
    assert!(failure.code == code::TRY_LATER && failure.message.contains("podCIDR"), "{failure}");
    let facts =
        NodeFacts { name: "n".into(), pod_cidrs: vec!["10.9.0.0/24".parse().unwrap()], pod_mtu: 1500, ipv6: true };
    agent.set_facts(facts);
    add(&agent, &node, "c1", 1).await.unwrap();
}

#[tokio::test]
async fn killed_after_any_step_the_next_start_finds_one_truth() {
    // 0: reserved; 1: and built; 2: and committed; 3: and removed.
    for step in 0..4 {
        let node = Node::new();
        let agent = node.agent().await;
        let addresses = agent.reserve(1, wish("c1", 1), NETNS).await.unwrap().addresses;
        let mut ifindex = 0;
        if step >= 1 {
            ifindex = node.kernel.build(&key("c1"));
        }
        if step >= 2 {
            agent.commit(1, &key("c1"), MAC, ifindex).await.unwrap();
        }
        if step >= 3 {
            agent.delete(&key("c1"), 2).await.unwrap();
        }
        drop(agent);
        let agent = node.agent().await;
        node.kernel.sweep();
        let lives = step == 2;
        assert_eq!(agent.counts().added, usize::from(lives), "step {step}");
        assert_eq!(node.kernel.get().rows.len(), usize::from(lives), "step {step}");
        assert_eq!(node.kernel.get().links.len(), usize::from(lives), "step {step}");
        assert_eq!(node.published(), usize::from(lives), "step {step}");
        let next = add(&agent, &node, "c2", 3).await.unwrap();
        // A living pod has them, a removed one's rest; those of an ADD that was never completed are free.
        assert!(step < 2 || addresses.iter().all(|ip| !next.contains(ip)), "step {step}");
        if lives {
            agent.delete(&key("c1"), 2).await.unwrap();
            assert_eq!(agent.counts().added, 1);
        }
    }
}

#[tokio::test]
async fn a_journal_cut_anywhere_never_cuts_off_a_living_pod() {
    let node = Node::new();
    let agent = node.agent().await;
    let first = add(&agent, &node, "c1", 1).await.unwrap();
    add(&agent, &node, "c2", 1).await.unwrap();
    let path = node.state.path().join("journal");
    let journal = std::fs::read(&path).unwrap();
    let rows = node.kernel.get().rows.clone();
    let links = node.kernel.get().links.clone();
    for cut in 0..=journal.len() {
        std::fs::write(&path, &journal[..cut]).unwrap();
        node.kernel.get().rows.clone_from(&rows);
        node.kernel.get().links.clone_from(&links);
        node.kernel.get().retired.clear();
        let agent = node.agent().await;
        // A pod whose commit was cut off is undone (its ADD was never answered); one whose record is lost altogether stays.
        let adding = agent.counts();
        assert_eq!(adding.adding, 0, "cut at {cut}");
        let alive = node.kernel.get().rows.len();
        assert_eq!(adding.added, alive, "cut at {cut}");
        assert!(alive >= 1, "cut at {cut}");
        if node.kernel.get().rows.contains_key(&1) {
            let got = add(&agent, &node, "c3", 5).await.unwrap();
            assert!(first.iter().all(|ip| !got.contains(ip)), "cut at {cut}: an address of a living pod was given");
        }
        // Its DEL finds it by name.
        for id in ["c1", "c2", "c3"] {
            agent.delete(&key(id), 9).await.unwrap();
        }
        node.kernel.sweep();
        assert!(node.kernel.get().rows.is_empty() && node.kernel.get().links.is_empty(), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_source_that_is_late_cuts_nobody_off_and_names_who_lost_his_record() {
    let mut node = Node::new();
    let agent = node.agent().await;
    let addresses = add(&agent, &node, "c1", 1).await.unwrap();
    add(&agent, &node, "c2", 1).await.unwrap();
    let rows = node.kernel.get().rows.clone();
    let pod = |ips: &[IpAddr], node: &str| PodObject { node: node.into(), ips: ips.into(), ..PodObject::default() };
    let named = |name: &str| Name::new("ns", name);
    // c1's is gone, c2's is elsewhere.
    node.pods = [(named("pod-c2"), pod(&[], "m").into())].into();
    let agent = node.agent().await;
    assert_eq!((&node.kernel.get().rows, agent.counts().added, node.published()), (&rows, 2, 2));
    // Without a journal both go on, and who has an address by the source has his name and status file again.
    std::fs::remove_file(node.state.path().join("journal")).unwrap();
    node.pods = [(named("pod-c1"), pod(&addresses, "n").into())].into();
    let agent = node.agent().await;
    assert_eq!((&node.kernel.get().rows, agent.counts().added, node.published()), (&rows, 2, 1));
}

#[tokio::test]
async fn a_source_that_tells_of_pods_after_the_start_names_who_lost_his_record() {
    let node = Node::new();
    let agent = node.agent().await;
    let addresses = add(&agent, &node, "c1", 1).await.unwrap();
    std::fs::remove_file(node.state.path().join("journal")).unwrap();
    let agent = node.agent().await;
    let pod = |agent: &Attachments| agent.locals().into_values().next().unwrap().pod.unwrap().name().to_owned();
    assert_eq!((pod(&agent), node.published()), (String::new(), 0), "nobody tells whose it is");
    let told = PodObject { node: "n".into(), ips: addresses.into(), ..PodObject::default() };
    let key = Name::new("ns", "pod-c1");
    node.kernel.get().pods.clear();
    agent.pods_told([(key.clone(), told.into())].into()).await;
    assert_eq!((pod(&agent), node.published()), ("pod-c1".to_owned(), 1));
    assert!(node.kernel.get().pods.values().eq([&Some(key)]), "policy is told");
}

#[tokio::test(start_paused = true)]
async fn who_has_his_name_by_the_source_is_judged_by_it_once_the_maps_take_it() {
    let node = Node::new();
    let agent = node.agent().await;
    let addresses = add(&agent, &node, "c1", 1).await.unwrap();
    std::fs::remove_file(node.state.path().join("journal")).unwrap();
    let agent = node.agent().await;
    let told = PodObject { node: "n".into(), ips: addresses.into(), ..PodObject::default() };
    let key = Name::new("ns", "pod-c1");
    node.kernel.get().pods.clear();
    node.kernel.get().refuse_rows = true;
    let tries = {
        let (agent, key) = (Arc::clone(&agent), key.clone());
        tokio::spawn(async move { agent.pods_told([(key, told.into())].into()).await })
    };
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(node.kernel.get().pods.is_empty() && !tries.is_finished());
    assert_eq!(node.published(), 1, "its status file waits for nothing");
    node.kernel.get().refuse_rows = false;
    tries.await.unwrap();
    assert!(node.kernel.get().pods.values().eq([&Some(key)]), "policy is told");
}

#[tokio::test]
async fn who_lost_his_record_has_the_catalogues_name_and_else_is_taken_for_nobody() {
    let mut node = Node::new();
    let agent = node.agent().await;
    for id in ["c1", "c2", "c3", "c4"] {
        add(&agent, &node, id, 1).await.unwrap();
    }
    let slots: Vec<u32> = agent.locals().into_keys().collect();
    let name = |name: &str| PodName { namespace: "ns".into(), name: name.into() };
    // Of the last one nothing is known, and of the one before that it is so.
    node.names = [
        (slots[0], Some(name("pod-c1"))),
        (slots[1], None),
        (slots[2], Some(PodName { namespace: String::new(), name: String::new() })),
    ]
    .into();
    std::fs::remove_file(node.state.path().join("journal")).unwrap();
    let said = |agent: Arc<Attachments>| agent.locals().into_values().map(|local| local.pod).collect::<Vec<_>>();
    let unknown = Some(Name::new("", ""));
    let wanted = [Some(Name::new("ns", "pod-c1")), None, unknown.clone(), unknown];
    assert_eq!(said(node.agent().await), wanted);
    // With the journal that was begun then, too.
    assert_eq!(said(node.agent().await), wanted);
    // The source still may tell.
    let addresses = agent.locals()[&slots[3]].addresses.clone();
    let pod = PodObject { node: "n".into(), ips: addresses.into(), ..PodObject::default() };
    node.pods = [(Name::new("ns", "pod-c4"), pod.into())].into();
    assert_eq!(said(node.agent().await)[3], Some(Name::new("ns", "pod-c4")));
}

#[tokio::test]
async fn after_a_reboot_nothing_is_left_and_addresses_are_free() {
    let mut node = Node::new();
    let agent = node.agent().await;
    let before = add(&agent, &node, "c1", 50).await.unwrap();
    Queue::in_state(node.state.path())
        .lock_shared(std::time::Instant::now())
        .unwrap()
        .push(&Entry { key: key("c1"), started_ns: 99, boot_id: "boot-1".into() })
        .unwrap();
    drop(agent);
    node.kernel = Kernel::default();
    node.boot = "boot-2";
    let agent = node.agent().await;
    drop(agent.drain(node.state.path()).await.unwrap());
    assert_eq!((agent.counts().added, node.published()), (0, 0));
    // The clock started anew as well: the old DEL must not beat this ADD.
    assert_eq!(add(&agent, &node, "c1", 1).await.unwrap(), before);
    drop(agent);
    assert_eq!(node.agent().await.counts().added, 1, "the new journal is of the new boot");
}

#[tokio::test]
async fn queued_dels_are_done_before_the_socket_opens() {
    let node = Node::new();
    let agent = node.agent().await;
    add(&agent, &node, "c1", 1).await.unwrap();
    add(&agent, &node, "c2", 1).await.unwrap();
    let queue = Queue::in_state(node.state.path());
    let locked = queue.lock_shared(std::time::Instant::now()).unwrap();
    locked.push(&Entry { key: key("c1"), started_ns: 5, boot_id: "boot-1".into() }).unwrap();
    drop(locked);
    std::fs::write(node.state.path().join("queue/osm000000000000.json"), "{").unwrap();
    let agent = node.agent().await;
    let locked = agent.drain(node.state.path()).await.unwrap();
    assert_eq!(agent.counts().added, 1);
    assert!(locked.entries().unwrap().is_empty());
    assert!(agent.reserve(1, wish("c1", 4), NETNS).await.is_err(), "an ADD that started before the queued DEL");
}

#[tokio::test]
async fn gc_judges_its_own_network_only() {
    let node = Node::new();
    let agent = node.agent().await;
    for id in ["c1", "c2"] {
        add(&agent, &node, id, 1).await.unwrap();
    }
    agent.reserve(7, Wish { network: "other".into(), ..wish("c3", 1) }, NETNS).await.unwrap();
    let ifindex = node.kernel.build(&key("c3"));
    agent.commit(7, &key("c3"), MAC, ifindex).await.unwrap();
    agent.reserve(8, wish("c4", 1), NETNS).await.unwrap();
    agent.collect("osmia", &[key("c2")]).await.unwrap();
    assert!(agent.check(&key("c1")).await.is_err());
    for id in ["c2", "c3"] {
        agent.check(&key(id)).await.unwrap();
    }
    assert_eq!(agent.counts().adding, 1, "an ADD that is being served is not judged");
    agent.collect("osmia", &[]).await.unwrap();
    assert_eq!(agent.counts().added, 1);
}

#[tokio::test]
async fn garbage_goes_after_a_while_and_not_before() {
    let node = Node::new();
    let agent = node.agent().await;
    add(&agent, &node, "c1", 1).await.unwrap();
    add(&agent, &node, "c2", 1).await.unwrap();
    // c1's namespace goes without a DEL; a killed plugin leaves a link.
    let link = node.kernel.index_of(&host_link_name(&key("c1"))).unwrap().unwrap();
    node.kernel.get().links.remove(&link);
    let stray = node.kernel.build(&key("stray"));
    assert_eq!(agent.collect_garbage().await, 0);
    assert!(agent.check(&key("c1")).await.unwrap_err().message.contains("gone"));
    node.clock.advance(Limits::default().garbage_after);
    assert_eq!(agent.collect_garbage().await, 2);
    assert_eq!((agent.counts().added, node.kernel.get().rows.len()), (1, 1));
    assert_eq!(node.kernel.get().retired, [stray]);
    node.kernel.sweep();
    node.clock.advance(Limits::default().garbage_after);
    assert_eq!(agent.collect_garbage().await, 0);
}

#[tokio::test]
async fn a_row_that_somebody_changed_is_found_by_check_and_mended_at_start() {
    let node = Node::new();
    let agent = node.agent().await;
    add(&agent, &node, "c1", 1).await.unwrap();
    let good = node.kernel.get().rows.clone();
    node.kernel.get().rows.clear();
    assert_eq!(agent.check(&key("c1")).await.unwrap_err().code, code::DIFFERS);
    let agent = node.agent().await;
    assert_eq!(node.kernel.get().rows, good);
    agent.check(&key("c1")).await.unwrap();
}

#[tokio::test]
async fn fifty_at_once_each_get_their_own() {
    let node = Arc::new(Node::new());
    let agent = node.agent().await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..50 {
        let (agent, node) = (Arc::clone(&agent), Arc::clone(&node));
        tasks.spawn(async move { add(&agent, &node, &format!("c{i}"), 1).await.unwrap() });
    }
    let mut all: Vec<IpAddr> = tasks.join_all().await.into_iter().flatten().collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 100);
    assert_eq!(node.kernel.get().rows.len(), 50);
}

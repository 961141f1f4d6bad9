//! ADDs of pods of which the source has not told. Time stands still but for who waits.

use tokio::time::Instant;

use super::*;

/// An ADD that waits, up to its commit.
async fn waiting(node: &Node, agent: &Arc<Attachments>) -> tokio::task::JoinHandle<Result<(), Failure>> {
    node.kernel.get().untold = true;
    agent.reserve(1, wish("c1", 1), NETNS).await.unwrap();
    let (ifindex, agent) = (node.kernel.build(&key("c1")), Arc::clone(agent));
    let link = ifindex;
    let commit = tokio::spawn(async move { agent.commit(1, &key("c1"), MAC, ifindex).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(node.kernel.get().rows.is_empty() && !commit.is_finished());
    assert_eq!(node.kernel.get().guarded, [link], "its packets reach no stack while it waits");
    commit
}

#[tokio::test(start_paused = true)]
async fn an_add_goes_on_as_soon_as_its_pod_is_told() {
    let node = Node::new();
    let (agent, start) = (node.agent().await, Instant::now());
    let commit = waiting(&node, &agent).await;
    // Something else is told.
    node.told.send_replace(());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!commit.is_finished());
    node.kernel.get().untold = false;
    node.told.send_replace(());
    commit.await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_millis(2100), "{:?}", start.elapsed());
    let pod = Some(Name::new("ns", "pod-c1"));
    assert_eq!(node.kernel.get().pods.values().collect::<Vec<_>>(), [&pod]);
}

#[tokio::test(start_paused = true)]
async fn an_add_waits_five_seconds_at_most() {
    let node = Node::new();
    let (agent, start) = (node.agent().await, Instant::now());
    waiting(&node, &agent).await.await.unwrap().unwrap();
    assert_eq!(start.elapsed().as_secs(), 5);
    assert_eq!(agent.counts().added, 1);
}

#[tokio::test(start_paused = true)]
async fn an_add_whose_link_cannot_be_kept_shut_does_not_wait_and_is_undone() {
    let node = Node::new();
    let (agent, start) = (node.agent().await, Instant::now());
    node.kernel.get().untold = true;
    agent.reserve(1, wish("c1", 1), NETNS).await.unwrap();
    let ifindex = node.kernel.build(&key("c1"));
    node.kernel.get().refuse_rows = true;
    agent.commit(1, &key("c1"), MAC, ifindex).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(agent.counts(), Counts { added: 0, adding: 0, free_slots: 1023 });
}

#[tokio::test(start_paused = true)]
async fn a_del_waits_for_nobody() {
    let node = Node::new();
    let agent = node.agent().await;
    let commit = waiting(&node, &agent).await;
    let start = Instant::now();
    agent.delete(&key("c1"), 2).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(commit.await.unwrap().unwrap_err().code, code::TRY_LATER);
    assert_eq!(agent.counts(), Counts { added: 0, adding: 0, free_slots: 1023 });
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_did_not_name_is_waited_for_by_nobody() {
    let node = Node::new();
    let (agent, start) = (node.agent().await, Instant::now());
    node.kernel.get().untold = true;
    agent.reserve(1, Wish { pod: PodRef::default(), ..wish("c1", 1) }, NETNS).await.unwrap();
    let ifindex = node.kernel.build(&key("c1"));
    agent.commit(1, &key("c1"), MAC, ifindex).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(node.kernel.get().pods.values().collect::<Vec<_>>(), [&None]);
}

//! The journal between others' steps, and on a disk that refuses.

use super::*;

#[tokio::test]
async fn the_journal_stays_short() {
    let node = Node::new();
    let agent = node.agent().await;
    for i in 0..700 {
        add(&agent, &node, "c1", 2 * i).await.unwrap();
        agent.delete(&key("c1"), 2 * i + 1).await.unwrap();
        node.kernel.sweep();
        node.clock.advance(Duration::from_secs(1));
    }
    let lines = std::fs::read_to_string(node.state.path().join("journal")).unwrap().lines().count();
    assert!(lines < 1200, "{lines} lines after 2100");
    assert_eq!(node.agent().await.counts().added, 0);
}

#[tokio::test]
async fn a_journal_that_cannot_be_written_refuses_before_anything_is_held() {
    let node = Node::new();
    let agent = node.agent().await;
    // The journal's folder vanishes under an agent that must compact: the old journal goes on.
    add(&agent, &node, "c1", 1).await.unwrap();
    assert!(node.try_agent().await.is_ok());
    std::fs::remove_file(node.state.path().join("journal")).unwrap();
    std::fs::create_dir(node.state.path().join("journal")).unwrap();
    let error = node.try_agent().await.err().unwrap();
    assert!(format!("{error:#}").contains("journal"), "{error:#}");
    assert_eq!(node.kernel.get().rows.len(), 1, "the dataplane stays as it is");
}

#[tokio::test]
async fn a_compaction_between_others_steps_loses_none_of_them() {
    let node = Arc::new(Node::new());
    let agent = node.agent().await;
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..20 {
        let (agent, node) = (Arc::clone(&agent), Arc::clone(&node));
        tasks.spawn(async move {
            let id = format!("c{i}");
            for round in 0..40 {
                add(&agent, &node, &id, 2 * round).await.unwrap();
                if round < 39 || i % 2 == 0 {
                    agent.delete(&key(&id), 2 * round + 1).await.unwrap();
                }
                let mut kernel = node.kernel.get();
                kernel.links.retain(|_, name| *name != host_link_name(&key(&id)) || round == 39 && i % 2 == 1);
                drop(kernel);
                node.clock.advance(Duration::from_secs(1));
            }
        });
    }
    tasks.join_all().await;
    drop(agent);
    // Rows that are right for the journal, or nothing: a lost line would show as a difference.
    let rows = node.kernel.get().rows.clone();
    let agent = node.agent().await;
    assert_eq!(agent.counts(), Counts { added: 10, adding: 0, free_slots: 1013 });
    assert_eq!(node.kernel.get().rows, rows);
    for i in 0..20 {
        assert_eq!(agent.check(&key(&format!("c{i}"))).await.is_ok(), i % 2 == 1, "c{i}");
    }
}

#[tokio::test]
async fn a_disk_that_refused_gets_everything_before_the_next_promise() {
    let node = Node::new();
    let agent = node.agent().await;
    add(&agent, &node, "c1", 1).await.unwrap();
    agent.journal.lose_disk();
    add(&agent, &node, "c2", 1).await.unwrap();
    agent.reserve(9, wish("c3", 1), NETNS).await.unwrap();
    // What the journal's thread does, or a stop.
    agent.sync();
    let ifindex = node.kernel.build(&key("c3"));
    agent.commit(9, &key("c3"), MAC, ifindex).await.unwrap();
    agent.delete(&key("c2"), 2).await.unwrap();
    node.kernel.sweep();
    let agent = node.agent().await;
    assert_eq!(agent.counts().added, 2);
    agent.check(&key("c1")).await.unwrap();
    agent.check(&key("c3")).await.unwrap();
}

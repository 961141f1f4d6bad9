//! A recorded feed is an apiserver to the source: what it says arrives, whole and in order.

use osmia_agent::model::Name;
use osmia_lab::feed::{Feed, FeedServer, Sizes};
use osmia_lab::manifest::NodeManifest;
use osmia_lab::{Space, random};
use tempfile::TempDir;

use crate::follower::{Follower, Seen};

/// Whether the model has every pod and no other, as the feed has it now.
fn is_there(seen: &Seen, feed: &Feed, sizes: Sizes) -> bool {
    let pods = (0..sizes.pods).map(|index| feed.pod(index));
    let mut found = pods.map(|pod| (seen.cluster.pods.get(&Name::new(&pod.namespace, &pod.name)), pod));
    seen.cluster.pods.len() == sizes.pods
        && found.all(|(found, pod)| found.is_some_and(|found| found.uid == pod.uid && *found.ips == *pod.addresses))
}

#[test]
fn a_source_follows_a_recorded_feed() {
    let sizes = Sizes { nodes: 5, pods: 300, policies: 90, here: 3 };
    let own = NodeManifest { name: "n1".into(), addresses: Vec::new(), pod_cidrs: vec!["10.244.1.0/24".into()] };
    let mut feed = Feed::new(sizes, 1, &own);
    let (folder, space) =
        (TempDir::new().unwrap(), Space::network(format!("osm-feed-{:04x}", random() as u16)).unwrap());
    let server = FeedServer::start(&space, feed.events()).unwrap();
    let config = server.kubeconfig(folder.path()).unwrap();
    let follower = Follower::inside(&space, &config, &[], &folder.path().join("state"));
    follower.wait_started();
    follower.wait("all of it", |seen| {
        let cluster = &seen.cluster;
        (cluster.nodes.len(), cluster.namespaces.len(), cluster.policies.len()) == (5, 10, 90)
            && is_there(seen, &feed, sizes)
    });

    for event in (0..100).flat_map(|_| feed.churn()) {
        server.tell(&event);
    }
    let here = feed.here().next().unwrap();
    server.tell(&feed.attached(here, &["10.244.1.9".parse().unwrap()]));
    follower.wait("what happened", |seen| is_there(seen, &feed, sizes));
    assert_eq!(follower.seen().problems, Vec::<String>::new());

    // Who starts later gets it as a list.
    let late = Follower::inside(&space, &config, &[], &folder.path().join("late"));
    late.wait_started();
    late.wait("the same", |seen| seen.cluster == follower.seen().cluster);
}

//! What the plugin itself costs. Only what cannot depend on the machine's load is asserted; the figures are printed
//! (`--nocapture`), and the bench measures ADD as a whole.

use std::time::{Duration, Instant};

use osmia_cni::protocol::Request;

use crate::fake_agent::{Event, FakeAgent};
use crate::node::Node;

/// From the reservation to the commit, as the agent sees it: the netlink part. The floor is 0.66 ms; a veth that is made and then
/// moved into the pod's namespace costs 17 ms at best, so 5 ms at best tells the one from the other on any machine.
#[test]
fn the_link_is_built_without_moving_it() {
    let node = Node::new();
    let agent = node.agent();
    let pods: Vec<_> = (0..30).map(|i| node.pod(&format!("c{i}"))).collect();
    let mut whole = Vec::new();
    for pod in &pods {
        let call = pod.call("ADD");
        let start = Instant::now();
        call.run().result();
        whole.push(start.elapsed());
    }
    let mut built = between(&agent);
    built.sort();
    whole.sort();
    println!("reserve to commit: best {:?}, median {:?}, worst {:?}", built[0], built[15], built[29]);
    println!("ADD with process start: best {:?}, median {:?}", whole[0], whole[15]);
    assert!(built[0] < Duration::from_millis(5), "{built:?}");
}

fn between(agent: &FakeAgent) -> Vec<Duration> {
    let mut reserved = None;
    let mut times = Vec::new();
    for event in agent.events() {
        let Event::Asked(request, _, at) = event else { continue };
        match *request {
            Request::Reserve { .. } => reserved = Some(at),
            Request::Commit { .. } => times.push(at.duration_since(reserved.take().unwrap())),
            _ => {}
        }
    }
    times
}

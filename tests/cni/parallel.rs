//! Many callers at once (A3).

use std::collections::HashSet;
use std::thread;

use crate::kernel;
use crate::node::Node;

/// 30 ADDs of different containers, then their DELs with the agent there, then once more with it away.
#[test]
fn many_at_once() {
    let node = Node::new();
    let pods: Vec<_> = (0..30).map(|i| node.pod(&format!("c{i}"))).collect();
    let agent = node.agent();
    let results: Vec<_> = thread::scope(|scope| {
        let calls: Vec<_> = pods.iter().map(|pod| scope.spawn(|| pod.add("1.1.0"))).collect();
        calls.into_iter().map(|c| c.join().unwrap()).collect()
    });
    let addresses: HashSet<_> = results.iter().map(|r| r["ips"][0]["address"].as_str().unwrap()).collect();
    assert_eq!((addresses.len(), kernel::links(&node.space).len()), (30, 30));
    for (pod, result) in pods.iter().zip(&results) {
        assert_eq!(kernel::addresses(&pod.space, "eth0")[0].0, result["ips"][0]["address"].as_str().unwrap());
    }
    let delete_all = || {
        thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| pod.call("DEL").run().silent().stderr().len());
            }
        });
    };
    delete_all();
    assert_eq!(agent.asked().iter().filter(|a| **a == "delete").count(), 30);
    drop(agent);
    delete_all();
    assert_eq!(node.queued().len(), 30);
    assert!(kernel::links(&node.space).is_empty());
}

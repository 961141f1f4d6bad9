//! Many callers at once (A3).

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

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

/// What comes for a pod right after its ADD is answered, in both families, also while other pods start. The kernel makes the route to an
/// IPv6 address of its own in a worker that waits for a lock then: a datagram that comes before it is lost (9 to 23 of these 30 pods, seen).
#[test]
fn a_pod_is_there_for_the_first_packet_after_its_add() {
    let node = Node::new();
    let _agent = node.agent();
    let pods: Vec<_> = (0..30).map(|i| node.pod(&format!("c{i}"))).collect();
    let lost: Vec<String> = thread::scope(|scope| {
        let calls: Vec<_> = pods
            .iter()
            .map(|pod| {
                scope.spawn(|| {
                    let result = pod.add("1.1.0");
                    let addresses: Vec<IpAddr> = result["ips"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap())
                        .collect();
                    assert_eq!(addresses.len(), 2);
                    pod.space.run(|| {
                        addresses.into_iter().filter(|ip| !reaches(SocketAddr::new(*ip, 0))).collect::<Vec<_>>()
                    })
                })
            })
            .collect();
        calls.into_iter().flat_map(|c| c.join().unwrap().unwrap()).map(|ip| ip.to_string()).collect()
    });
    assert!(lost.is_empty(), "{lost:?}");
}

/// Whether a single datagram gets to this address.
fn reaches(address: SocketAddr) -> bool {
    let to = UdpSocket::bind(address).unwrap();
    to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let from = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).unwrap();
    from.send_to(b"first", to.local_addr().unwrap()).unwrap();
    to.recv(&mut [0; 5]).is_ok()
}

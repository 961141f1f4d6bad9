//! The agent killed under default deny.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use osmia_lab::{Encap, Proto, Space};

use crate::stage::{Stage, both};

/// Questions that `from` asks an echo every 2 ms on one flow, until it is told to stop: asked and answered.
fn asking(from: &Space, to: (std::net::IpAddr, u16), stop: &Arc<AtomicBool>) -> thread::JoinHandle<(u64, u64)> {
    let any = if to.0.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.connect(to).unwrap();
    let (hears, answers) = (socket.try_clone().unwrap(), Arc::<AtomicU64>::default());
    hears.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let (stop, count) = (Arc::clone(stop), Arc::clone(&answers));
    thread::spawn(move || {
        let told = Arc::clone(&stop);
        let hearing = thread::spawn(move || {
            let mut buffer = [0; 16];
            loop {
                match hears.recv(&mut buffer) {
                    Ok(_) => drop(count.fetch_add(1, Ordering::Relaxed)),
                    Err(_) if told.load(Ordering::Relaxed) => return,
                    Err(_) => {}
                }
            }
        });
        let mut asked = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            asked += u64::from(socket.send(&(asked + 1).to_be_bytes()).is_ok());
            thread::sleep(Duration::from_millis(2));
        }
        hearing.join().unwrap();
        (asked, answers.load(Ordering::Relaxed))
    })
}

#[test]
fn a_killed_agent_lets_nothing_through_and_nothing_be_lost() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("kept", &[]);
    let server = stage.pod(0, "kept", "server", &[("app", "server")]);
    let friend = stage.pod(1, "kept", "friend", &[("app", "friend")]);
    let (near, far) =
        (stage.pod(0, "kept", "near", &[("app", "stranger")]), stage.pod(1, "kept", "far", &[("app", "stranger")]));
    stage.policy("kept", "deny", "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress]}");
    stage.policy(
        "kept",
        "friend",
        "{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]}",
    );
    let (open, guarded) = (server.serves(Proto::Udp, 7000), server.serves(Proto::Udp, 7001));
    let stop = Arc::<AtomicBool>::default();
    let mut allowed = Vec::new();
    let mut denied = Vec::new();
    for v6 in [false, true] {
        let address = server.address(v6);
        allowed.push(asking(friend.space(), (address, 7000), &stop));
        denied.extend([&near, &far].map(|from| asking(from.space(), (address, 7001), &stop)));
    }
    let new_flows = |when: &str| {
        let senders = [("friend", friend.space(), true), ("near", near.space(), false), ("far", far.space(), false)];
        stage.expect(when, both(&server, &open, &senders));
    };
    new_flows("before");
    let node = stage.node(0);
    node.kill_agent().unwrap();
    new_flows("the agent is dead");
    node.start_agent().unwrap();
    node.wait_ready().unwrap_or_else(|err| panic!("{err:#}"));
    new_flows("it is there again");
    // What changed meanwhile counts from the start on.
    node.kill_agent().unwrap();
    stage.lab.write_policy("kept", "far", "{podSelector: {matchLabels: {app: other}}}").unwrap();
    node.start_agent().unwrap();
    node.wait_ready().unwrap_or_else(|err| panic!("{err:#}"));
    stage.settle();
    new_flows("after a second start");
    stop.store(true, Ordering::Relaxed);
    for flow in allowed {
        let (asked, answered) = flow.join().unwrap();
        assert!(asked > 100, "{asked}");
        assert_eq!(answered, asked, "answers on an allowed flow");
    }
    for flow in denied {
        assert_eq!(flow.join().unwrap().1, 0, "answers to who may not ask");
    }
    assert_eq!(guarded.count(), 0, "what came through while the agent was away");
    node.kill_agent().unwrap();
    stage.lab.remove("policy-kept-friend.yaml").unwrap();
    node.start_agent().unwrap();
    node.wait_ready().unwrap_or_else(|err| panic!("{err:#}"));
    stage.expect(
        "a permission that went while the agent was away",
        both(&server, &open, &[("friend", friend.space(), false)]),
    );
}

//! A pod's first packets, and pods that are told late.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::{Encap, Proto, Server, Space};

use crate::stage::{Guest, Stage, both};

/// What is sent to an address each millisecond until it is told to stop, from before there is a way.
fn sending(from: &Space, to: Vec<IpAddr>, port: u16, stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let socket = from.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut number = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            for address in &to {
                number += 1;
                // Until there is a network the kernel refuses.
                let _ = socket.send_to(&number.to_be_bytes(), (*address, port));
            }
            thread::sleep(Duration::from_millis(1));
        }
    })
}

/// Attaches a pod of the namespace that sends from its first moment on and is sent to; what arrived of both.
fn first_packets(stage: &Stage, namespace: &str, peer: &Guest, server: &Server) -> (usize, usize) {
    let object = stage.object(0, namespace, "new", &[]);
    stage.tell(&object);
    let (space, attachment) = stage.sandbox(0, &object);
    let inside = Server::start(&space, Proto::Udp, 7100).unwrap();
    let heard = server.count();
    let stop = Arc::<AtomicBool>::default();
    let out = sending(&space, vec![peer.address(false)], server.port, &stop);
    // The next free addresses of the node.
    let next = (2..12).map(|host| IpAddr::from(Ipv4Addr::new(10, 244, 1, host))).collect();
    let back = sending(peer.space(), next, 7100, &stop);
    let pod = stage.lab.attach(0, "new", space, attachment).unwrap_or_else(|err| panic!("{err:#}"));
    thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    out.join().unwrap();
    back.join().unwrap();
    let arrived = (server.count() - heard, inside.count());
    drop(inside);
    stage.lab.delete_pod(pod).unwrap();
    arrived
}

#[test]
fn a_pod_is_isolated_from_its_first_packet_on() {
    let stage = Stage::new(Encap::Auto, 1);
    stage.namespace("open", &[]);
    stage.namespace("shut", &[]);
    let peer = stage.pod(0, "open", "peer", &[]);
    let server = peer.serves(Proto::Udp, 7000);
    stage.policy("shut", "deny", "{podSelector: {}, policyTypes: [Ingress, Egress]}");
    assert_eq!(first_packets(&stage, "shut", &peer, &server), (0, 0), "packets of and to an isolated pod");
    let (out, back) = first_packets(&stage, "open", &peer, &server);
    assert!(out > 0 && back > 0, "packets of and to a pod that nothing isolates: {out}, {back}");
}

/// What is expected of the pod, by its own node, by a peer, and as a sender.
fn judge(stage: &Stage, when: &str, late: &Guest, peer: &Guest, passes: bool) {
    let (own, peers) = (late.serves(Proto::Udp, 7000), peer.serves(Proto::Udp, 7000));
    let node = &stage.node(0).space;
    let mut cases = both(late, &own, &[("its node", node, true), ("peer", peer.space(), passes)]);
    cases.extend(both(peer, &peers, &[("late", late.space(), passes)]));
    stage.expect(when, cases);
}

#[test]
fn a_pod_that_is_told_late_is_isolated_until_it_is() {
    let stage = Stage::new(Encap::Auto, 1);
    stage.namespace("late", &[]);
    let peer = stage.pod(0, "late", "peer", &[("app", "peer")]);
    // It selects others: that is known only when the pod is.
    stage.policy("late", "some", "{podSelector: {matchLabels: {app: db}}}");
    let object = stage.object(0, "late", "late", &[("app", "web")]);
    let (space, attachment) = stage.sandbox(0, &object);
    let start = Instant::now();
    let pod = stage.lab.attach(0, "late", space, attachment).unwrap_or_else(|err| panic!("{err:#}"));
    let took = start.elapsed();
    // No longer than that by the agent's own word: how fast the rest of an ADD is depends on what else runs here.
    assert!(took >= Duration::from_secs(5), "ADD waits 5 s for the pod's object: {took:?}");
    assert!(gave_up(&stage, "late/late"), "the agent says that it waits no longer");
    let late = Guest { pod, object };
    judge(&stage, "before its object", &late, &peer, false);
    assert!(metric(&stage, "osmia_policy_endpoints{state=\"provisional\"}") == 1.0);
    stage.tell(&late.object);
    stage.settle();
    judge(&stage, "after its object", &late, &peer, true);
    assert!(metric(&stage, "osmia_policy_endpoints{state=\"provisional\"}") == 0.0);
    // Out of the way before the sandbox goes.
    stage.lab.delete_pod(late.pod).unwrap();
}

#[test]
fn an_add_goes_on_when_the_object_comes_and_waits_for_none_where_no_policy_is_known() {
    let stage = Stage::new(Encap::Auto, 1);
    stage.namespace("quick", &[]);
    stage.settle();
    stage.no_policy("fence", "fence");
    let attach = |name: &str| {
        let object = stage.object(0, "quick", name, &[]);
        let (space, attachment) = stage.sandbox(0, &object);
        let start = Instant::now();
        let pod = thread::scope(|scope| {
            let attached = scope.spawn(|| stage.lab.attach(0, name, space, attachment).unwrap());
            if name == "told" {
                thread::sleep(Duration::from_millis(700));
                stage.tell(&object);
            }
            attached.join().unwrap()
        });
        (Guest { pod, object }, start.elapsed())
    };
    let (first, _) = attach("untold");
    assert!(!gave_up(&stage, "quick/untold"), "nothing is waited for where no policy is known");
    stage.policy("quick", "some", "{podSelector: {matchLabels: {app: db}}}");
    let (second, took) = attach("told");
    assert!(took >= Duration::from_millis(700), "it waits for its object: {took:?}");
    assert!(!gave_up(&stage, "quick/told"), "the object came after 0.7 s");
    // Of the first one nothing is known, and by now there is a policy.
    let server = second.serves(Proto::Udp, 7000);
    let senders = [("untold", first.space(), false), ("its node", &stage.node(0).space, true)];
    stage.expect("a policy came", both(&second, &server, &senders));
}

/// Whether the agent of the first node waited in vain for a pod's object.
fn gave_up(stage: &Stage, pod: &str) -> bool {
    let log = std::fs::read_to_string(&stage.node(0).paths.log).unwrap();
    log.lines().any(|line| line.contains("the source has not told of it") && line.contains(pod))
}

/// A number that the agent of the first node tells Prometheus.
pub(crate) fn metric(stage: &Stage, name: &str) -> f64 {
    let text = crate::stage::metrics(stage.node(0));
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in\n{text}")).parse().unwrap()
}

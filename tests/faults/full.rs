//! Flow tables with more in them than they hold: the established one by connections that live, the one on probation by openers.
//!
//! What proves that a living flow was left alone is one that leaves by masquerade: its port stands in its entries alone, so it would not
//! outlive their loss; also one that is idle meanwhile, which no use of it keeps.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use osmia_lab::load::Stream;
use osmia_lab::packet::{Injector, Ip, flags};
use osmia_lab::{OUTSIDE_V4, OUTSIDE_V6, Options, Pod, Probe, Proto, Subnet};

use crate::exchange::Exchange;
use crate::idle::Idle;
use crate::stage::{counted, lab, pod, story};

/// Gives the smallest tables: 1024 rows on probation, 2048 established ones, which are 1024 flows; 256 for an endpoint.
const MEMORY: [&str; 2] = ["--flow-memory", "1M"];
const SHARE: usize = 256;
/// Five shares and more are beyond the table.
const FILLERS: usize = 5;
/// Times the table on probation.
const OPENERS: u16 = 6000;

/// Connections that prove themselves, more than one pod's share, held open.
fn fill(from: &Pod, server: (&Pod, IpAddr)) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let (inside, address) = (&server.0.space, server.1);
    let listener = inside.run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    let target: SocketAddr = listener.local_addr().unwrap();
    from.space
        .run(|| {
            let pairs = (0..SHARE + 20).map(|_| {
                let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(3)).unwrap();
                let accepted = listener.accept().unwrap().0;
                stream.set_nodelay(true).unwrap();
                for _ in 0..3 {
                    stream.write_all(b"more").unwrap();
                }
                (stream, accepted)
            });
            pairs.unzip()
        })
        .unwrap()
}

/// Openers of a pod at a closed port of another one.
fn overrun(from: &Pod, to: &Pod, v6: bool) {
    let (source, target) = (from.address(v6).unwrap(), to.address(v6).unwrap());
    let sender = Injector::inside(&from.space).unwrap();
    for number in 0..OPENERS {
        let packet = Ip::new(source, target).tcp(1024 + number, 9, flags::SYN, 1, 0);
        sender.send(&packet, target).unwrap();
    }
}

fn full(v6: bool) {
    let agent_flags = MEMORY.map(str::to_owned).to_vec();
    let lab = lab(Options { nodes: vec![Subnet::Near], agent_flags, ..Options::default() });
    let node = &lab.nodes[0];
    let (client, server) = (pod(&lab, 0, "client"), pod(&lab, 0, "server"));
    let fillers: Vec<_> = (0..FILLERS).map(|number| pod(&lab, 0, &format!("filler-{number}"))).collect();
    let at = |pod: &Pod| pod.address(v6).unwrap();
    let outside = (&lab.lan.outside, if v6 { IpAddr::from(OUTSIDE_V6) } else { OUTSIDE_V4.into() });
    let exchange = Exchange::start((&client.space, at(&client)), outside);
    let mut idle = Idle::start((&client.space, at(&client)), outside);
    let stream = Stream::start(&client.space, outside.0, outside.1, 2_000_000).unwrap();
    thread::sleep(Duration::from_millis(2500));
    idle.talk().unwrap();

    let held: Vec<_> = fillers.iter().map(|filler| fill(filler, (&server, at(&server)))).collect();
    for name in ["flow_table_full", "flow_endpoint_full"] {
        assert!(counted(node, name) > 0, "{name}; {}", story(node));
    }
    for alive in [true, false] {
        if !alive {
            node.kill_agent().unwrap();
        }
        let before = stream.received();
        // A flow that finds no room works where it is.
        let late = Exchange::start((&fillers[0].space, at(&fillers[0])), (&server.space, at(&server)));
        overrun(&fillers[1], &server, v6);
        let probe = Probe {
            proto: Proto::Tcp,
            from: &fillers[2].space,
            to: &server.space,
            destination: at(&server),
            patience: Duration::from_secs(3),
        };
        let arrived = probe.run().unwrap().complete(at(&fillers[2]));
        arrived.unwrap_or_else(|why| panic!("agent alive: {alive}: a new connection: {why}; {}", story(node)));
        thread::sleep(Duration::from_millis(300));
        let late = late.finish();
        assert_eq!((late.missing, late.strange), (0, 0), "agent alive: {alive}: {late:?}; {}", story(node));
        idle.talk().unwrap_or_else(|err| panic!("agent alive: {alive}: the idle flows: {err}; {}", story(node)));
        let moved = stream.received() - before;
        assert!(moved > 300_000, "agent alive: {alive}: the stream moved {moved} bytes; {}", story(node));
    }
    for (mut near, far) in held.into_iter().flat_map(|(near, far)| near.into_iter().zip(far)) {
        near.write_all(b"still there").unwrap();
        drop((near, far));
    }
    stream.finish().unwrap();
    let exchanged = exchange.finish();
    assert!(exchanged.asked > 1000, "{exchanged:?}");
    assert_eq!((exchanged.missing, exchanged.strange), (0, 0), "{exchanged:?}; {}", story(node));
}

#[test]
fn established_flows_are_left_alone_by_full_tables() {
    full(false);
}

#[test]
fn established_flows_of_ipv6_are_left_alone_by_full_tables() {
    full(true);
}

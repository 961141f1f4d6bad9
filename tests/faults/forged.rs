//! A pod that sends as another one.

use osmia_lab::packet::{Injector, Ip, flags};
use osmia_lab::{Options, Subnet};

use crate::exchange::Exchange;
use crate::stage::{dropped, lab, pod, receiver, story};

const FORGED: u64 = 50;

#[test]
fn another_pods_living_flow_can_not_be_entered() {
    let lab = lab(Options { nodes: vec![Subnet::Near], ..Options::default() });
    let node = &lab.nodes[0];
    let (client, server, rogue) = (pod(&lab, 0, "client"), pod(&lab, 0, "server"), pod(&lab, 0, "rogue"));
    let sender = Injector::inside(&rogue.space).unwrap();
    for alive in [true, false] {
        if !alive {
            node.kill_agent().unwrap();
        }
        for v6 in [false, true] {
            let (from, to) = (client.address(v6).unwrap(), server.address(v6).unwrap());
            let exchange = Exchange::start((&client.space, from), (&server.space, to));
            let before = dropped(node, "SOURCE_GUARD");
            let tuple = (exchange.client_port, exchange.server_port);
            for _ in 0..FORGED {
                sender.send(&Ip::new(from, to).udp(tuple.0, tuple.1, b"forged"), to).unwrap();
                // The answers as well, and what would end a connection.
                sender.send(&Ip::new(to, from).udp(tuple.1, tuple.0, b"forged"), from).unwrap();
                sender.send(&Ip::new(from, to).tcp(tuple.0, 80, flags::RST, 1, 0), to).unwrap();
            }
            assert_eq!(dropped(node, "SOURCE_GUARD") - before, 3 * FORGED, "{}", story(node));
            let exchanged = exchange.finish();
            assert!(exchanged.asked > 0);
            assert_eq!((exchanged.missing, exchanged.strange), (0, 0), "v6={v6}: {exchanged:?}");
            // Its own packets do arrive, so that the forged ones prove something.
            let (socket, port) = receiver(&server.space, to);
            sender.send(&Ip::new(rogue.address(v6).unwrap(), to).udp(4000, port, b"own"), to).unwrap();
            assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 3, "v6={v6}");
        }
    }
}

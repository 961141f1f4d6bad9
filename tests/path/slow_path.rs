//! A pod on the slow path, as a chained plugin would have it: the node's stack forwards, and has a route and a neighbour for the pod.

use osmia_lab::{OUTSIDE_V4, Proto, Underlay};

use crate::bench::{Bench, Carry, probe};

#[test]
fn everything_of_it_goes_through_the_stack() {
    let mut bench = Bench::new(Underlay::Passing, Carry::Tunnel4).expect("a bench");
    let slow = bench.pod(0, "slow").expect("a pod");
    let (near, far) = (bench.pod(0, "near").expect("a pod"), bench.pod(1, "far").expect("a pod"));
    bench.planes[0].slow_path(1).expect("its row");
    let node = bench.lab.nodes[0].space.try_clone().expect("the node");
    let link = &slow.link;
    node.ip(&format!(
        "route add {v4}/32 dev {link}
route add {v6}/128 dev {link}
neighbour add {v4} lladdr 02:00:00:00:00:01 dev {link} nud permanent
neighbour add {v6} lladdr 02:00:00:00:00:01 dev {link} nud permanent
",
        v4 = slow.v4,
        v6 = slow.v6,
    ))
    .expect("a route to the pod");
    // The stack does not forward yet: that nothing passes shows who carries.
    let arrival = probe(Proto::Udp, &slow.space, &near.space, near.v4.into(), 1);
    assert_eq!(arrival.count, 0, "not through the stack; {}", bench.story());
    node.sysctl(&[("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1")]).expect("forwarding");
    for v6 in [false, true] {
        for other in [&near, &far] {
            for proto in [Proto::Tcp, Proto::Udp, Proto::Icmp] {
                bench.passes(proto, &slow.space, &other.space, other.address(v6), slow.address(v6));
                bench.passes(proto, &other.space, &slow.space, slow.address(v6), other.address(v6));
            }
        }
        let own = bench.lab.nodes[0].address(v6);
        bench.passes(Proto::Tcp, &slow.space, &node, own, slow.address(v6));
        bench.passes(Proto::Tcp, &node, &slow.space, slow.address(v6), own);
    }
    let outside = &bench.lab.lan.outside;
    bench.passes(Proto::Tcp, &slow.space, outside, OUTSIDE_V4.into(), bench.lab.nodes[0].v4().into());
}

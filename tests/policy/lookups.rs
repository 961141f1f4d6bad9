//! Who asks the verdicts: first packets, and no other.

use osmia_lab::load::Writing;
use osmia_lab::{Encap, Node, Proto};
use osmia_maps::layout::policy::V_ALLOW;
use osmia_maps::layout::{VerdictKey, VerdictRow};
use osmia_maps::{Access, Pins, tables};

use crate::stage::{Stage, both};

/// Both ends may, and nobody else.
const PAIRED: &str = "{podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}}]}], egress: [{to: [{podSelector: {}}]}]}";

/// The node's verdict rows.
fn verdicts(node: &Node) -> Vec<(VerdictKey, VerdictRow)> {
    let pins = Pins::new(&node.paths.bpffs);
    node.space.run(|| tables::VERDICTS.open(&pins, Access::ReadOnly).unwrap().rows().unwrap()).unwrap()
}

/// Writes rows by hand: no epoch tells anybody.
fn put(node: &Node, rows: &[(VerdictKey, VerdictRow)]) {
    let pins = Pins::new(&node.paths.bpffs);
    node.space.run(|| tables::VERDICTS.open(&pins, Access::ReadWrite).unwrap().put_all(rows).unwrap()).unwrap();
}

#[test]
fn a_packet_of_a_living_flow_asks_no_verdict_and_a_first_one_does() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("asked", &[]);
    let server = stage.pod(0, "asked", "server", &[]);
    let (near, far) = (stage.pod(0, "asked", "near", &[]), stage.pod(1, "asked", "far", &[]));
    stage.policy("asked", "paired", PAIRED);
    let mut living = Vec::new();
    for client in [&near, &far] {
        for v6 in [false, true] {
            let start = |server_writes| {
                Writing::start(client.space(), server.space(), server.address(v6), server_writes).unwrap()
            };
            living.extend([false, true].map(start));
        }
    }
    let tcp = server.serves(Proto::Tcp, 8080);
    let first_packets = |when: &str, arrive: bool| {
        stage.expect(when, both(&server, &tcp, &[("near", near.space(), arrive), ("far", far.space(), arrive)]));
    };
    first_packets("as the policy says", true);

    let rows: Vec<_> = stage.lab.nodes.iter().map(verdicts).collect();
    for (node, rows) in stage.lab.nodes.iter().zip(&rows) {
        let allow = rows.iter().filter(|(_, row)| row.flags & V_ALLOW != 0);
        let refuse: Vec<_> =
            allow.map(|(key, row)| (*key, VerdictRow { flags: row.flags & !V_ALLOW, ..*row })).collect();
        assert!(!refuse.is_empty(), "{}: no row allows anything", node.name);
        put(node, &refuse);
    }
    first_packets("every row refuses", false);
    living.iter().for_each(|writing| writing.flows().unwrap());

    for (node, rows) in stage.lab.nodes.iter().zip(&rows) {
        put(node, rows);
    }
    first_packets("as before", true);
    living.iter().for_each(|writing| writing.flows().unwrap());
}

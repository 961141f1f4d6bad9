//! Ports by number, by range, by name, and protocols.

use osmia_lab::{Encap, Proto};

use crate::stage::{Stage, both};

#[test]
fn rules_speak_of_the_ports_they_name_and_of_no_others() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("ports", &[]);
    let mut object = stage.object(0, "ports", "server", &[("app", "server")]);
    object.ports = vec![("web".into(), 8081)];
    let server = stage.pod_of(0, object);
    let (near, far) = (stage.pod(0, "ports", "near", &[]), stage.pod(1, "ports", "far", &[]));
    stage.policy(
        "ports",
        "in",
        "{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: web}, {port: 9000, endPort: 9005, protocol: UDP}]}]}",
    );
    let wanted = [
        (Proto::Tcp, 8081, true),
        (Proto::Udp, 8081, false),
        (Proto::Tcp, 8080, false),
        (Proto::Udp, 9000, true),
        (Proto::Udp, 9005, true),
        (Proto::Tcp, 9003, false),
        (Proto::Udp, 9006, false),
        (Proto::Udp, 8999, false),
    ];
    let servers = wanted.map(|(proto, port, arrives)| (server.serves(proto, port), arrives));
    let senders = |arrives| [("near", near.space(), arrives), ("far", far.space(), arrives)];
    let cases = servers.iter().flat_map(|(of, arrives)| both(&server, of, &senders(*arrives)));
    stage.expect("a named port and a range", cases.collect());

    // The name is the receiver's, also where the sender is held to it.
    stage.policy("ports", "in", "{podSelector: {matchLabels: {app: nobody}}}");
    stage.policy(
        "ports",
        "out",
        "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: web}]}]}",
    );
    let cases =
        servers.iter().flat_map(|(of, _)| both(&server, of, &senders(of.proto == Proto::Tcp && of.port == 8081)));
    stage.expect("egress to a named port", cases.collect());
}

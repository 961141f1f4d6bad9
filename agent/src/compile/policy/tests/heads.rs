//! What a lookup of two or three steps relies on.

use osmia_maps::layout::{
    VerdictKey, VerdictRow,
    policy::{CLASS_BITS, PORT_BITS, PROTO_BITS, V_ALLOW, narrower},
};
use serde_json::{Value, json};

use super::{super::*, sharing::Lab};

/// Two pods of the roles `web` and `db`, and what is let into slot 1, that of `db`.
fn db(ingress: Value) -> (Lab, Change) {
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    for (slot, app) in [(1, "db"), (2, "web")] {
        lab.pod(app, &format!("10.0.0.{slot}"), json!({"app": app}));
        lab.endpoint(slot, app, &format!("10.0.0.{slot}"));
    }
    let change = lab.policy("p", json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": ingress}));
    (lab, change)
}

fn web() -> Value {
    json!([{"podSelector": {"matchLabels": {"app": "web"}}}])
}

#[test]
fn a_head_knows_the_rows_of_its_pair_and_has_what_anybody_may() {
    let (lab, change) = db(json!([
        {"from": web(), "ports": [{"port": 80}, {"protocol": "UDP", "port": 53, "endPort": 63}]},
        {"ports": [{"protocol": "SCTP", "port": 1}, {"port": 443}]},
    ]));
    let set = lab.policies.rules(1).ingress;
    let class = change.peers[&"10.0.0.2".parse::<IpAddr>().unwrap()].unwrap();
    let head = |class| change.verdicts[&VerdictKey::head(set, class)];
    let (of_web, of_anybody) = (head(class), head(0));
    // 53, 54-55, 56-63; 80 and 443 are whole ports.
    assert_eq!(of_web.flags, narrower(PORT_BITS) | narrower(PORT_BITS - 1) | narrower(PORT_BITS - 3));
    assert_eq!(of_anybody.flags, narrower(PORT_BITS), "denied but for some ports");
    let [tcp, udp, sctp] = of_web.loose;
    assert_eq!(of_anybody.loose, [sctp, 0, sctp], "each protocol by the rule that allows it");
    assert!(tcp == udp && tcp != sctp && ![tcp, sctp].contains(&of_web.cookie), "{of_web:?}");
    assert_eq!(of_web.cookie, of_anybody.cookie, "what isolates");
    for (key, _) in change.verdicts.iter().filter(|(key, _)| key.asked.set == set && key.bits != CLASS_BITS) {
        assert!(head(key.asked.class).flags & narrower(key.bits) != 0, "{key:?}");
    }
    assert_eq!(change.verdicts.len(), 2 + 6 + 2, "heads, and what each may: a class all of anybody's as well");
}

#[test]
fn where_all_is_allowed_the_head_is_all_there_is() {
    let (lab, change) = db(json!([{"from": web()}, {"ports": [{"port": 80}]}]));
    let set = lab.policies.rules(1).ingress;
    let class = change.peers[&"10.0.0.2".parse::<IpAddr>().unwrap()].unwrap();
    let rows: Vec<(&VerdictKey, &VerdictRow)> =
        change.verdicts.iter().filter(|(key, _)| key.asked.class == class).collect();
    let [(key, row)] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((**key, row.flags, row.loose), (VerdictKey::head(set, class), V_ALLOW, [0; 3]));
}

#[test]
fn a_protocol_without_a_port_has_the_shortest_row() {
    let (lab, change) = db(json!([{"from": web(), "ports": [{"protocol": "UDP"}]}]));
    let set = lab.policies.rules(1).ingress;
    let class = change.peers[&"10.0.0.2".parse::<IpAddr>().unwrap()].unwrap();
    assert_eq!(change.verdicts[&VerdictKey::head(set, class)].flags, narrower(PROTO_BITS));
}

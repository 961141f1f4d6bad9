//! Objects that are odd and legal, and parts that the API would refuse among them: what is decided is what the oracle says.

use osmia_oracle::stories::pod_key;
use serde_json::{Value, json};

use super::*;

/// The pods of a node as the stories have them, `p0` and `p3` in namespace `a` among them, whose objects are given; and their policies.
#[derive(Default)]
struct Odd {
    objects: Objects,
    cluster: Cluster,
    policies: Policies,
    maps: Maps,
}

impl Odd {
    fn new() -> Self {
        let mut odd = Self::default();
        let first = Policies::resume(&Catalogue::default(), &Pinned::default(), &odd.cluster, &BTreeMap::new());
        odd.policies = first.policies;
        odd.maps.apply(&first.change, |_, _| Ok(())).unwrap();
        odd.tell(["a", "b"].map(|name| {
            let labels = json!({"kubernetes.io/metadata.name": name});
            Happening::Is(json!({"kind": "Namespace", "metadata": {"name": name, "labels": labels}}))
        }));
        for pod in [0, 1, 3] {
            let (namespace, name) = pod_key(pod);
            let ports = json!([{"name": "http", "containerPort": 80}]);
            odd.tell([
                Happening::Is(json!({"kind": "Pod",
                    "metadata": {"namespace": namespace, "name": name, "labels": {"app": format!("p{pod}"), "empty": ""}},
                    "spec": {"containers": [{"name": "c", "ports": ports}]},
                    "status": {"podIPs": [{"ip": format!("10.0.0.{}", 10 + pod)}, {"ip": format!("fd00::{}", 10 + pod)}]}})),
                Happening::Added(pod, None),
            ]);
        }
        odd
    }

    /// Takes them in at once and brings them into force.
    fn tell(&mut self, happenings: impl IntoIterator<Item = Happening>) -> Change {
        let touched: Vec<Touched> =
            happenings.into_iter().flat_map(|happening| self.objects.apply(&happening, &mut self.cluster)).collect();
        let change = self.policies.update(&self.cluster, touched);
        self.maps.apply(&change, |_, _| Ok(())).unwrap();
        self.maps.attach(&self.policies, &self.objects.locals());
        self.maps.apply(&self.policies.collect(&self.cluster), |_, _| Ok(())).unwrap();
        change
    }

    /// A policy of namespace `a`.
    fn policy(&mut self, name: &str, spec: &Value) -> Change {
        self.tell([policy(name, spec)])
    }

    /// That everybody is told what the oracle says; how many of these questions are let pass.
    #[track_caller]
    fn holds(&self, more: impl IntoIterator<Item = (IpAddr, Traffic)>) -> usize {
        let (world, locals) = (self.objects.world(), self.objects.locals());
        let mut asked = questions().to_vec();
        asked.extend(more);
        let mut passed = 0;
        for (slot, local) in &locals {
            let endpoint = endpoint(local);
            for (direction, of) in [(Direction::Ingress, Asked::Ingress), (Direction::Egress, Asked::Egress)] {
                for (peer, traffic) in &asked {
                    let said = self.maps.passes(*slot, direction, *peer, protocol(traffic.protocol), traffic.port);
                    let wanted = world.held(&endpoint, of, *peer, *traffic);
                    assert_eq!(said, wanted.passes(), "{slot} {direction:?} {peer} {traffic:?}: {wanted:?}");
                    passed += usize::from(said);
                }
            }
        }
        assert_eq!(self.policies.over_budget(), []);
        passed
    }
}

fn policy(name: &str, spec: &Value) -> Happening {
    Happening::Is(json!({"kind": "NetworkPolicy", "metadata": {"namespace": "a", "name": name}, "spec": spec}))
}

fn tcp(port: u16) -> Traffic {
    Traffic { protocol: Carried::Tcp, port }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn what_is_there_twice_is_there_once() {
    let mut odd = Odd::new();
    let peers = json!([{"podSelector": {"matchLabels": {"app": "p3"}}}, {"ipBlock": {"cidr": "203.0.113.0/24"}}]);
    let rule = json!({"from": peers, "ports": [{"port": 80}, {"port": "http"}]});
    odd.policy("once", &json!({"ingress": [rule]}));
    let (passed, sizes) = (odd.holds([]), odd.maps.sizes());

    let twice: Vec<Value> = [peers.as_array().unwrap().clone(), peers.as_array().unwrap().clone()].concat();
    let port = json!({"port": 80, "protocol": "TCP"});
    let ports = json!([port, port, {"port": "http"}, {"port": 80, "endPort": 80}, {"port": "http"}]);
    let rule = json!({"from": twice, "ports": ports});
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress", "Ingress"], "ingress": [rule, rule, rule]});
    odd.policy("once", &spec);
    assert_eq!((odd.holds([]), odd.maps.sizes()), (passed, sizes), "peers, ports, rules and types twice");
    odd.policy("again", &spec);
    assert_eq!((odd.holds([]), odd.maps.sizes()), (passed, sizes), "the policy under another name");
}

#[test]
fn ranges_inside_ranges_are_told_apart_to_the_last_bit() {
    let mut odd = Odd::new();
    // Each with a port of its own, the narrower without the even ones around it.
    let v4 = (0..=32).map(|bits: u16| (format!("10.0.0.12/{bits}"), bits));
    let v6 = (0..=128).map(|bits: u16| (format!("fd00::12/{bits}"), 200 + bits));
    let rules: Vec<Value> = v4
        .chain(v6)
        .map(|(cidr, bits)| {
            let except: &[&str] = match (bits % 2, bits) {
                (0, 0..=30) => &["10.0.0.12/31"],
                (0, 200..=320) => &["fd00::12/124"],
                _ => &[],
            };
            json!({"from": [{"ipBlock": {"cidr": cidr, "except": except}}], "ports": [{"port": 1000 + bits}]})
        })
        .collect();
    odd.policy("nested", &json!({"ingress": rules}));
    let v4 = (0..32).map(|bit| IpAddr::from((u32::from_be_bytes([10, 0, 0, 12]) ^ 1 << bit).to_be_bytes()));
    let whole = u128::from_be_bytes([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12]);
    let v6 = (0..128).map(|bit| IpAddr::from((whole ^ 1 << bit).to_be_bytes()));
    let near: Vec<IpAddr> = v4.chain(v6).collect();
    let ports: Vec<u16> = (1000..1330).step_by(7).collect();
    let passed = odd.holds(near.iter().flat_map(|peer| ports.iter().map(|port| (*peer, tcp(*port)))));
    assert!(passed > 1000, "{passed}");
}

#[test]
fn a_thousand_rules_in_either_direction() {
    let mut odd = Odd::new();
    let rules = |field: &str| -> Vec<Value> {
        let rule = |n: u16| {
            let cidr = format!("203.0.{}.{}/32", n / 250, n % 250);
            let protocol = if n.is_multiple_of(2) { "TCP" } else { "UDP" };
            json!({field: [{"ipBlock": {"cidr": cidr}}], "ports": [{"port": n + 1, "protocol": protocol}]})
        };
        (0..1000).map(rule).collect()
    };
    odd.policy("many", &json!({"policyTypes": ["Ingress", "Egress"], "ingress": rules("from"), "egress": rules("to")}));
    let some = (0..1000_u16).step_by(9).flat_map(|n| {
        let peer = IpAddr::from([203, 0, (n / 250) as u8, (n % 250) as u8]);
        [n, n + 1, n + 2].map(|port| (peer, tcp(port)))
    });
    let passed = odd.holds(some) - odd.holds([]);
    assert_eq!(
        passed,
        4 * 56 + 2 * 3 * 112,
        "of each even one its port, both ways of two pods; the third is not isolated"
    );
}

#[test]
fn the_first_and_the_last_port_and_none_beyond() {
    let mut odd = Odd::new();
    let ask = |odd: &Odd| odd.holds([0, 1, 2, 65534, 65535].map(|port| (address("203.0.113.7"), tcp(port))));
    let none = {
        odd.policy("ports", &json!({"ingress": []}));
        ask(&odd)
    };
    // The pods p0 and p3 are isolated.
    for (ports, passed) in [
        (json!([{"port": 1}]), 2),
        (json!([{"port": 65535}]), 2),
        (json!([{"port": 1, "endPort": 1}]), 2),
        (json!([{"port": 65535, "endPort": 65535}]), 2),
        (json!([{"port": 65534, "endPort": 65535}]), 4),
        // Port 0 is no port that the API knows.
        (json!([{"port": 0}]), 0),
        (json!([{"port": 65536}]), 0),
        (json!([{"port": 0, "endPort": 1}]), 0),
        (json!([{"port": 0}, {"port": 65536}, {"port": 2}]), 2),
    ] {
        odd.policy("ports", &json!({"ingress": [{"from": [{"ipBlock": {"cidr": "203.0.113.7/32"}}], "ports": ports}]}));
        assert_eq!(ask(&odd) - none, passed, "{ports}");
    }
    odd.policy("ports", &json!({"ingress": [{"from": [{"ipBlock": {"cidr": "203.0.113.7/32"}}], "ports": [{"port": 1, "endPort": 65535}]}]}));
    // All but port 0, and those that everybody is asked about.
    assert_eq!(ask(&odd) - none, 2 * (4 + 4), "all ports of TCP");
}

#[test]
fn labels_without_value_and_as_long_as_they_may_be() {
    let mut odd = Odd::new();
    let long = "x".repeat(63);
    let key = format!("{}.{}/{long}", "y".repeat(63), "z".repeat(63));
    odd.tell([Happening::Is(json!({"kind": "Pod",
        "metadata": {"namespace": "b", "name": "other", "labels": {&key: &long}},
        "status": {"podIPs": [{"ip": "10.0.0.20"}]}}))]);
    let from = |selector: Value| json!({"ingress": [{"from": [{"namespaceSelector": {}, "podSelector": selector}]}]});
    let mut passed = Vec::new();
    for selector in [
        json!({"matchLabels": {&key: &long}}),
        json!({"matchLabels": {"empty": ""}}),
        json!({"matchExpressions": [{"key": "empty", "operator": "In", "values": ["", "x"]}]}),
        json!({"matchExpressions": [{"key": "empty", "operator": "NotIn", "values": [""]}]}),
    ] {
        odd.policy("labels", &from(selector));
        passed.push(odd.holds([]));
    }
    assert!(passed[0] == passed[3] && passed[1] == passed[2] && passed[0] < passed[1], "{passed:?}");
}

#[test]
fn ten_thousand_namespaces() {
    let mut odd = Odd::new();
    let namespace = |n: u32, team: u32| {
        let labels = json!({"kubernetes.io/metadata.name": format!("n{n}"), "team": format!("t{team}")});
        Happening::Is(json!({"kind": "Namespace", "metadata": {"name": format!("n{n}"), "labels": labels}}))
    };
    odd.tell((0..10_000).map(|n| namespace(n, n % 100)));
    odd.tell((0..200).map(|n| {
        Happening::Is(json!({"kind": "Pod",
            "metadata": {"namespace": format!("n{}", 50 * n), "name": "p", "labels": {"app": "x"}},
            "status": {"podIPs": [{"ip": format!("10.9.0.{n}")}]}}))
    }));
    let some = || (0..200).map(|n| (address(&format!("10.9.0.{n}")), tcp(80)));
    // Namespaces of pods are every fiftieth: of the teams t0 and t50.
    let from = |values: &[&str]| {
        let selector = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": values}]});
        json!({"ingress": [{"from": [{"namespaceSelector": selector}]}]})
    };
    odd.policy("team", &from(&["t0"]));
    let half = odd.holds(some());
    odd.policy("team", &from(&["t0", "t50", "t7"]));
    assert_eq!(odd.holds(some()) - half, 2 * 100);
    // One namespace among them changes what is said of its own pod alone.
    let change = odd.tell([namespace(50, 1)]);
    assert_eq!((change.peers.len(), change.verdicts.len()), (1, 0), "{change:?}");
    assert_eq!(odd.holds(some()) - half, 2 * 99);
    assert!(odd.tell([namespace(51, 1)]).is_empty(), "a namespace without pods");
}

//! That the stories have every feature of the API in them, and each of them with packets that it lets pass and packets that it does not.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    api::{
        core::v1::Pod,
        networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort},
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use proptest::{strategy::ValueTree, test_runner::TestRunner};

use super::*;
use crate::{Direction, Protocol, Traffic, Verdict};

/// Stories that are looked at.
const STORIES: usize = 150;
/// How often each feature has to be seen either way.
const ENOUGH: usize = 5;

/// How often a feature was there with either outcome.
#[derive(Default)]
struct Seen(BTreeMap<String, [usize; 2]>);

impl Seen {
    fn count(&mut self, feature: impl fmt::Display, yes: bool) {
        self.0.entry(feature.to_string()).or_default()[usize::from(!yes)] += 1;
    }

    #[track_caller]
    fn enough(&self, features: &[&str]) {
        let mut few = Vec::new();
        for feature in features {
            let [yes, no] = self.0.get(*feature).copied().unwrap_or_default();
            println!("{feature:50} {yes:7} {no:7}");
            few.extend((yes.min(no) < ENOUGH).then_some((feature, yes, no)));
        }
        assert!(few.is_empty(), "too few of one outcome or the other: {few:?}");
    }
}

fn worlds(mut each: impl FnMut(&[Happening])) {
    let mut runner = TestRunner::deterministic();
    for _ in 0..STORIES {
        each(&story().new_tree(&mut runner).unwrap().current());
    }
}

fn told(story: &[Happening]) -> Objects {
    let mut objects = Objects::default();
    story.iter().for_each(|happening| objects.apply(happening));
    objects
}

/// Some of what may be asked, other traffic for each peer.
fn traffic(at: usize) -> Traffic {
    const ALL: [(Protocol, u16); 9] = [
        (Protocol::Tcp, 80),
        (Protocol::Udp, 53),
        (Protocol::Sctp, 80),
        (Protocol::Tcp, 8080),
        (Protocol::Other, 0),
        (Protocol::Udp, 8080),
        (Protocol::Tcp, 443),
        (Protocol::Sctp, 1),
        (Protocol::Udp, 65535),
    ];
    let (protocol, port) = ALL[at % ALL.len()];
    Traffic { protocol, port }
}

/// What is said of every endpoint of this node, of each direction, to and from everybody, of this much traffic.
fn verdicts(objects: &Objects, many: usize, mut each: impl FnMut(&Endpoint, Direction, IpAddr, Traffic, &Verdict)) {
    let world = objects.world();
    let mut at = 0;
    for endpoint in &world.endpoints {
        for direction in [Direction::Ingress, Direction::Egress] {
            for peer in addresses() {
                for _ in 0..many {
                    at += 1;
                    let verdict = world.held(endpoint, direction, peer, traffic(at));
                    each(endpoint, direction, peer, traffic(at), &verdict);
                }
            }
        }
    }
}

fn of_selector(what: &str, selector: &LabelSelector) -> Vec<String> {
    let labels = selector.match_labels.iter().flatten().count();
    let expressions = selector.match_expressions.as_deref().unwrap_or_default();
    let mut features = vec![match (labels, expressions.len()) {
        (0, 0) => format!("{what}: empty"),
        (_, 0) => format!("{what}: labels"),
        (0, _) => format!("{what}: expressions"),
        _ => format!("{what}: both"),
    }];
    for expression in expressions {
        let many = if expression.values.as_ref().is_some_and(|values| values.len() > 1) { " of several" } else { "" };
        features.push(format!("operator {}{many}", expression.operator));
    }
    features
}

fn of_peer(peer: &NetworkPolicyPeer) -> Vec<String> {
    let mut features = Vec::new();
    match (&peer.ip_block, &peer.namespace_selector, &peer.pod_selector) {
        (Some(block), None, None) => {
            let family = if block.cidr.contains(':') { 6 } else { 4 };
            let except = if block.except.as_ref().is_some_and(|e| !e.is_empty()) { " with except" } else { "" };
            features.push(format!("range of IPv{family}{except}"));
        }
        (None, Some(_), Some(_)) => features.push("pods of namespaces".to_owned()),
        (None, Some(_), None) => features.push("namespaces".to_owned()),
        (None, None, Some(_)) => features.push("pods".to_owned()),
        _ => features.push("refused peer".to_owned()),
    }
    features.extend(peer.namespace_selector.iter().flat_map(|s| of_selector("namespaceSelector", s)));
    features.extend(peer.pod_selector.iter().flat_map(|s| of_selector("podSelector", s)));
    features
}

fn of_port(port: &NetworkPolicyPort) -> String {
    let protocol = port.protocol.as_deref().unwrap_or("no protocol");
    let kind = match (&port.port, port.end_port) {
        (None, None) => "all ports",
        (Some(IntOrString::Int(1..=65535)), None) => "number",
        (Some(IntOrString::String(_)), None) => "name",
        (Some(IntOrString::Int(first @ 1..=65535)), Some(last)) if *first <= last && last <= 65535 => "range",
        _ => "refused port",
    };
    if protocol == "ICMP" {
        return "refused port".to_owned();
    }
    if kind == "refused port" { kind.to_owned() } else { format!("{protocol}: {kind}") }
}

/// What a rule has in it.
fn of_rule(peers: Option<&[NetworkPolicyPeer]>, ports: Option<&[NetworkPolicyPort]>) -> Vec<String> {
    let mut features = Vec::new();
    match peers {
        None => features.push("no peers".to_owned()),
        Some([]) => features.push("empty peers".to_owned()),
        Some(list) => {
            features.extend(list.iter().flat_map(of_peer));
            if list.iter().enumerate().any(|(i, peer)| list[..i].contains(peer)) {
                features.push("a peer twice".to_owned());
            }
            if list.iter().filter(|peer| peer.ip_block.is_some()).count() > 1 {
                features.push("several ranges".to_owned());
            }
        }
    }
    match ports {
        None => features.push("no ports".to_owned()),
        Some([]) => features.push("empty ports".to_owned()),
        Some(list) => features.extend(list.iter().map(of_port)),
    }
    features
}

/// Features of each rule of a policy.
fn rules(policy: &NetworkPolicy, direction: Direction) -> Vec<Vec<String>> {
    let spec = policy.spec.clone().unwrap_or_default();
    match direction {
        Direction::Ingress => {
            spec.ingress.iter().flatten().map(|r| of_rule(r.from.as_deref(), r.ports.as_deref())).collect()
        }
        Direction::Egress => {
            spec.egress.iter().flatten().map(|r| of_rule(r.to.as_deref(), r.ports.as_deref())).collect()
        }
    }
}

#[test]
fn every_kind_of_rule_lets_pass_and_does_not() {
    let mut seen = Seen::default();
    worlds(|story| {
        let objects = told(story);
        let policies: Vec<NetworkPolicy> = objects.of("NetworkPolicy");
        let find = |namespace: &str, name: &str| {
            let is = |said: &Option<String>, wanted: &str| said.as_deref() == Some(wanted);
            policies.iter().find(|p| is(&p.metadata.namespace, namespace) && is(&p.metadata.name, name)).unwrap()
        };
        verdicts(&objects, 3, |_, direction, _, _, verdict| match verdict {
            Verdict::NotIsolated => {}
            Verdict::Allowed(by) => {
                for rule in by {
                    let features = &rules(find(&rule.namespace, &rule.policy), direction)[rule.rule];
                    features.iter().for_each(|feature| seen.count(feature, true));
                }
            }
            Verdict::Denied(by) => {
                let all = by.iter().flat_map(|(namespace, name)| rules(find(namespace, name), direction));
                all.flatten().for_each(|feature| seen.count(feature, false));
            }
        });
    });
    seen.enough(&[
        "range of IPv4",
        "range of IPv4 with except",
        "range of IPv6",
        "range of IPv6 with except",
        "several ranges",
        "a peer twice",
        "refused peer",
        "pods",
        "namespaces",
        "pods of namespaces",
        "podSelector: empty",
        "podSelector: labels",
        "podSelector: expressions",
        "podSelector: both",
        "namespaceSelector: empty",
        "namespaceSelector: labels",
        "namespaceSelector: expressions",
        "namespaceSelector: both",
        "operator In",
        "operator In of several",
        "operator NotIn",
        "operator NotIn of several",
        "operator Exists",
        "operator DoesNotExist",
        "refused port",
    ]);
    let protocols = ["TCP", "UDP", "SCTP", "no protocol"];
    let kinds =
        protocols.iter().flat_map(|of| ["all ports", "number", "name", "range"].map(|kind| format!("{of}: {kind}")));
    let kinds: Vec<String> = kinds.collect();
    seen.enough(&kinds.iter().map(String::as_str).collect::<Vec<_>>());
    // A rule without either keeps nobody out by it.
    for feature in ["no peers", "empty peers", "no ports", "empty ports"] {
        assert!(seen.0.get(feature).is_some_and(|[yes, _]| *yes >= ENOUGH), "{feature}");
    }
}

#[test]
fn every_way_to_write_whom_a_policy_isolates_does_and_does_not() {
    let mut seen = Seen::default();
    worlds(|story| {
        let objects = told(story);
        let world = objects.world();
        for pod in &world.pods {
            for direction in [Direction::Ingress, Direction::Egress] {
                let isolating = world.isolating(pod, direction);
                for policy in world.policies.iter().filter(|p| p.metadata.namespace == pod.metadata.namespace) {
                    let spec = policy.spec.clone().unwrap_or_default();
                    let is = isolating.iter().any(|of| of.metadata.name == policy.metadata.name);
                    let egress = if spec.egress.iter().flatten().next().is_some() { "egress" } else { "none" };
                    let types = match spec.policy_types.as_deref() {
                        None => format!("types by default, {egress}"),
                        Some([]) => format!("empty types, {egress}"),
                        Some(types) => format!("types {}", types.join(" ")),
                    };
                    seen.count(format!("{direction:?}, {types}"), is);
                    let features = match &spec.pod_selector {
                        None => vec!["subject: absent".to_owned()],
                        Some(selector) => of_selector("subject", selector),
                    };
                    features.into_iter().for_each(|feature| seen.count(feature, is));
                }
            }
        }
    });
    seen.enough(&["subject: absent", "subject: empty", "subject: labels", "subject: expressions", "subject: both"]);
    for types in ["types by default, egress", "empty types, egress", "types Ingress Egress"] {
        seen.enough(&[&format!("Ingress, {types}"), &format!("Egress, {types}")]);
    }
    let only = |feature: &str, yes: bool| {
        let [isolated, open] = seen.0.get(feature).copied().unwrap_or_default();
        assert!(if yes { isolated >= ENOUGH } else { isolated == 0 && open >= ENOUGH }, "{feature}: {isolated} {open}");
    };
    for types in ["types by default, none", "empty types, none", "types Ingress"] {
        only(&format!("Ingress, {types}"), true);
        only(&format!("Egress, {types}"), false);
    }
    only("Egress, types Egress", true);
    only("Ingress, types Egress", false);
}

/// What is special about the pods that have, or say that they have, an address.
fn of_owners(world: &World, address: IpAddr) -> Vec<&'static str> {
    let says = |pod: &&Pod| {
        let status = pod.status.clone().unwrap_or_default();
        let list = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).chain(status.pod_ip.clone());
        list.collect::<Vec<_>>().contains(&address.to_string())
    };
    let claims: Vec<&Pod> = world.pods.iter().filter(says).collect();
    let here = world.endpoints.iter().find(|endpoint| endpoint.addresses.contains(&address));
    let mut features = vec![match (here, claims.len()) {
        (Some(endpoint), _) if endpoint.pod.is_none() => "an endpoint that nobody named",
        (Some(endpoint), _) if world.own(endpoint).is_none() => "an endpoint that nobody told of",
        (Some(endpoint), 1..) if claims.iter().any(|pod| world.own(endpoint) != Some(*pod)) => {
            "an address given anew while its pod before is there"
        }
        (Some(_), 0) => "an endpoint whose pod has no address yet",
        (Some(_), _) => "a pod of this node",
        (None, 0) => "nobody",
        (None, 1) => "a pod of another node",
        (None, _) => "an address of several pods",
    }];
    for pod in claims {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        if here.is_some_and(|endpoint| {
            endpoint.uid.is_some() && pod.metadata.uid.is_some() && endpoint.uid != pod.metadata.uid
        }) {
            features.push("a pod of another uid");
        }
        if matches!(phase, Some("Succeeded" | "Failed")) {
            features.push("a completed pod");
        }
        if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
            features.push("a pod on its node's network");
        }
        if pod.metadata.deletion_timestamp.is_some() {
            features.push("a terminating pod");
        }
        if pod.status.as_ref().is_some_and(|s| s.pod_ips.as_ref().is_some_and(|ips| ips.len() == 1)) {
            features.push("a pod of one family");
        }
        if pod.status.as_ref().is_some_and(|s| s.pod_ips.is_none()) {
            features.push("a pod with the older address field alone");
        }
    }
    features
}

#[test]
fn every_kind_of_peer_is_let_in_and_kept_out() {
    let mut seen = Seen::default();
    worlds(|story| {
        let objects = told(story);
        let world = objects.world();
        verdicts(&objects, 3, |endpoint, _, peer, _, verdict| {
            if *verdict == Verdict::NotIsolated {
                return;
            }
            for feature in of_owners(&world, peer) {
                seen.count(feature, verdict.passes());
            }
            let Some(own) = world.own(endpoint) else { return };
            let sidecar = own.spec.iter().flat_map(|s| s.init_containers.iter().flatten());
            for container in sidecar {
                let kind = if container.restart_policy.is_some() { "a sidecar" } else { "an init container" };
                seen.count(kind, verdict.passes());
            }
        });
    });
    seen.enough(&[
        "nobody",
        "a pod of this node",
        "a pod of another node",
        "an address of several pods",
        "an address given anew while its pod before is there",
        "an endpoint that nobody named",
        "an endpoint that nobody told of",
        "an endpoint whose pod has no address yet",
        "a pod of another uid",
        "a completed pod",
        "a pod on its node's network",
        "a terminating pod",
        "a pod of one family",
        "a pod with the older address field alone",
        "a sidecar",
        "an init container",
    ]);
}

#[test]
fn every_kind_of_event_opens_and_shuts() {
    let mut seen = Seen::default();
    worlds(|story| {
        let mut objects = Objects::default();
        let answers = |objects: &Objects| {
            let mut answers = BTreeMap::new();
            verdicts(objects, 2, |endpoint, direction, peer, traffic, verdict| {
                answers.insert((endpoint.addresses[0], direction, peer, traffic), verdict.passes());
            });
            answers
        };
        let mut before = BTreeMap::new();
        for happening in story {
            let there = objects.objects.keys().cloned().collect::<BTreeSet<_>>();
            objects.apply(happening);
            let kind = match happening {
                Happening::Is(object) => {
                    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
                    let key = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
                    format!("{} {}", key.0, if there.contains(&key) { "changes" } else { "comes" })
                }
                Happening::Gone(kind, ..) => format!("{kind} goes"),
                Happening::Added(..) | Happening::AddedUnnamed(_) | Happening::Deleted(_) => "endpoint".to_owned(),
            };
            let after = answers(&objects);
            for (question, passes) in &after {
                if before.get(question).is_some_and(|before| before != passes) {
                    seen.count(&kind, *passes);
                }
            }
            before = after;
        }
    });
    seen.enough(&["Namespace changes", "Pod changes", "NetworkPolicy changes", "NetworkPolicy comes", "endpoint"]);
    // What of the others can be seen here: who is told of is isolated no more for want of an object, and so on.
    for (event, way) in
        [("Namespace comes", 0), ("Namespace goes", 1), ("Pod comes", 0), ("Pod goes", 1), ("NetworkPolicy goes", 0)]
    {
        let seen = seen.0.get(event).copied().unwrap_or_default();
        assert!(seen[way] >= ENOUGH, "{event}: {seen:?}");
    }
}

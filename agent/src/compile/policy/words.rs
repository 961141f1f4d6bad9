//! Rules and peers in words that an operator knows from the object and from kubectl.

use std::fmt::Write as _;

use super::atoms::{Atom, Who};
use crate::model::{
    Requirement, Selector,
    policy::{Direction, Peers, Port, PortItem, Ports, Protocol, Rule},
};

/// Of a long list only so many are written out.
const SPELT: usize = 8;

/// A peer: `pods app=web in namespaces env=prod`.
pub(super) fn atom(atom: &Atom) -> String {
    match &atom.named {
        None => who(&atom.who),
        Some((protocol, name)) => format!("{} port {name} of {}", word(*protocol), who(&atom.who)),
    }
}

/// A rule: `from pods app=web in namespaces env=prod, tcp 80, udp 53-60`.
pub(super) fn rule(rule: &Rule, direction: Direction, namespace: &str) -> String {
    let mut text = String::from(match direction {
        Direction::Ingress => "from ",
        Direction::Egress => "to ",
    });
    match &rule.peers {
        Peers::Anyone => text.push_str("anybody"),
        Peers::Of(peers) => {
            let peers: Vec<String> = peers
                .iter()
                .map(|peer| Who::of(peer, namespace).map_or("nobody (refused)".to_owned(), |w| who(&w)))
                .collect();
            list(&mut text, &peers, " or ");
        }
    }
    text.push_str(", ");
    match &rule.ports {
        Ports::All => text.push_str("all traffic"),
        Ports::Of(items) if items.is_empty() => text.push_str("no port (refused)"),
        Ports::Of(items) => list(&mut text, &items.iter().map(port).collect::<Vec<_>>(), ", "),
    }
    text
}

fn list(text: &mut String, items: &[String], between: &str) {
    let spelt = items.get(..SPELT).unwrap_or(items);
    text.push_str(&spelt.join(between));
    if let Some(more) = items.len().checked_sub(spelt.len()).filter(|more| *more > 0) {
        let _ = write!(text, "{between}{more} more");
    }
}

fn who(who: &Who) -> String {
    let pods = |selector: &Selector| match selector.0.is_empty() {
        true => "all pods".to_owned(),
        false => format!("pods {}", selected(selector)),
    };
    match who {
        Who::AnyPod => "all pods".to_owned(),
        Who::Own(namespace, selector) => format!("{} in namespace {namespace}", pods(selector)),
        Who::Labelled(namespaces, selector) if namespaces.0.is_empty() => {
            format!("{} in all namespaces", pods(selector))
        }
        Who::Labelled(namespaces, selector) => format!("{} in namespaces {}", pods(selector), selected(namespaces)),
        Who::Block(cidr, except) if except.is_empty() => cidr.to_string(),
        Who::Block(cidr, except) => {
            let mut text = format!("{cidr} except ");
            list(&mut text, &except.iter().map(ToString::to_string).collect::<Vec<_>>(), " and ");
            text
        }
    }
}

/// As kubectl's `--selector` has it.
fn selected(selector: &Selector) -> String {
    let requirements = selector.0.iter().map(|requirement| match requirement {
        Requirement::In(key, values) => one_of(key, values.iter(), ["=", "in"]),
        Requirement::NotIn(key, values) => one_of(key, values.iter(), ["!=", "notin"]),
        Requirement::Exists(key) => key.to_string(),
        Requirement::DoesNotExist(key) => format!("!{key}"),
    });
    requirements.collect::<Vec<_>>().join(",")
}

fn one_of<'a>(key: &str, values: impl Iterator<Item = &'a Box<str>>, [one, many]: [&str; 2]) -> String {
    let values: Vec<&str> = values.map(|value| &**value).collect();
    match values.as_slice() {
        [value] => format!("{key}{one}{value}"),
        values => format!("{key} {many} ({})", values.join(",")),
    }
}

fn port(item: &PortItem) -> String {
    let protocol = word(item.protocol);
    match &item.port {
        Port::All => protocol.to_owned(),
        Port::Range(first, last) if first == last => format!("{protocol} {first}"),
        Port::Range(first, last) => format!("{protocol} {first}-{last}"),
        Port::Named(name) => format!("{protocol} {name}"),
    }
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{folder::manifest, object::Object};

    fn said(rule: &str) -> String {
        let policy = format!(
            r#"{{"kind":"NetworkPolicy","metadata":{{"namespace":"a","name":"p"}},"spec":{{"ingress":[{rule}]}}}}"#
        );
        let read = manifest::parse(&policy).unwrap();
        let Some(Object::Policy(namespace, _, policy)) = read.into_iter().next() else { panic!("no policy") };
        super::rule(&policy.ingress.unwrap()[0], Direction::Ingress, &namespace)
    }

    #[test]
    fn a_rule_reads_as_it_was_written() {
        let labels = |key: &str, value: &str| format!(r#"{{"matchLabels":{{"{key}":"{value}"}}}}"#);
        let (web, prod) = (labels("app", "web"), labels("env", "prod"));
        let tests = [
            (
                format!(
                    r#"{{"from":[{{"podSelector":{web},"namespaceSelector":{prod}}}],
                        "ports":[{{"port":80}},{{"protocol":"UDP","port":53,"endPort":60}}]}}"#
                ),
                "from pods app=web in namespaces env=prod, tcp 80, udp 53-60",
            ),
            ("{}".into(), "from anybody, all traffic"),
            (
                format!(r#"{{"from":[{{"podSelector":{{}}}},{{"namespaceSelector":{{}},"podSelector":{web}}}]}}"#),
                "from all pods in namespace a or pods app=web in all namespaces, all traffic",
            ),
            (
                r#"{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16","10.2.0.0/16"]}}],
                    "ports":[{"protocol":"SCTP"},{"port":"http"}]}"#
                    .into(),
                "from 10.0.0.0/8 except 10.1.0.0/16 and 10.2.0.0/16, sctp, tcp http",
            ),
            (
                r#"{"from":[{"podSelector":{"matchExpressions":[
                    {"key":"a","operator":"In","values":["x","y"]},{"key":"b","operator":"NotIn","values":["x"]},
                    {"key":"c","operator":"Exists"},{"key":"d","operator":"DoesNotExist"}]}}]}"#
                    .into(),
                "from pods a in (x,y),b!=x,c,!d in namespace a, all traffic",
            ),
            (
                r#"{"from":[{"ipBlock":{"cidr":"nonsense"}}],"ports":[{"port":9,"endPort":8}]}"#.into(),
                "from nobody (refused), no port (refused)",
            ),
        ];
        for (written, read) in tests {
            assert_eq!(said(&written), read);
        }
        let many: Vec<String> = (0..20).map(|n| format!(r#"{{"ipBlock":{{"cidr":"10.0.0.{n}/32"}}}}"#)).collect();
        let text = said(&format!(r#"{{"from":[{}]}}"#, many.join(",")));
        assert!(text.ends_with(" or 10.0.0.7/32 or 12 more, all traffic"), "{text}");
    }
}

//! What many objects say alike (labels of replicas, names of nodes, rules that are on every namespace) lies in memory once.
//!
//! Invariant: an object says the same before and after. What no object has any more goes once as much again has come.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use super::object::Object;
use crate::model::{
    Labels, NamedPort, Selector,
    policy::{Namespaces, Peer, Peers, Rule},
};

/// Fewer than these are not worth looking for what nobody has.
const FEW: usize = 1024;

/// All that was told, each once.
#[derive(Default)]
pub(super) struct Commons {
    nodes: Pool<Arc<str>>,
    labels: Pool<Arc<Labels>>,
    ports: Pool<Arc<[NamedPort]>>,
    selectors: Pool<Selector>,
    rules: Pool<Arc<[Rule]>>,
}

impl Commons {
    /// Takes for each part of the object the one that others have, where it is equal.
    pub(super) fn share(&mut self, object: &mut Object) {
        match object {
            Object::Node(..) => {}
            Object::Namespace(_, namespace) => self.labels.share(&mut namespace.labels),
            Object::Pod(_, _, pod) => {
                self.nodes.share(&mut pod.node);
                self.labels.share(&mut pod.labels);
                self.ports.share(&mut pod.ports);
            }
            Object::Policy(_, _, policy) => {
                self.selectors.share(&mut policy.subject);
                for rules in [&mut policy.ingress, &mut policy.egress].into_iter().flatten() {
                    self.share_rules(rules);
                }
            }
        }
    }

    fn share_rules(&mut self, rules: &mut Arc<[Rule]>) {
        // Those that come for the first time are nobody else's yet.
        if !self.rules.has(rules)
            && let Some(new) = Arc::get_mut(rules)
        {
            for peer in new.iter_mut().flat_map(|rule| match &mut rule.peers {
                Peers::Anyone => [].as_mut_slice(),
                Peers::Of(peers) => peers,
            }) {
                let Peer::Pods { namespaces, pods } = peer else { continue };
                self.selectors.share(pods);
                if let Namespaces::Labelled(selector) = namespaces {
                    self.selectors.share(selector);
                }
            }
        }
        self.rules.share(rules);
    }
}

/// Something that is in memory once for all who have it.
trait Shared: Clone + Eq + Hash {
    /// How many have it.
    fn holders(&self) -> usize;
}

impl<T: ?Sized + Eq + Hash> Shared for Arc<T> {
    fn holders(&self) -> usize {
        Arc::strong_count(self)
    }
}

impl Shared for Selector {
    fn holders(&self) -> usize {
        self.0.holders()
    }
}

struct Pool<T> {
    known: HashSet<T>,
    /// With as many it is looked for those that nobody has.
    full: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), full: FEW }
    }
}

impl<T: Shared> Pool<T> {
    fn has(&self, value: &T) -> bool {
        self.known.contains(value)
    }

    fn share(&mut self, value: &mut T) {
        if let Some(known) = self.known.get(value) {
            value.clone_from(known);
            return;
        }
        if self.known.len() >= self.full {
            self.known.retain(|known| known.holders() > 1);
            self.known.shrink_to_fit();
            self.full = FEW.max(2 * self.known.len());
        }
        self.known.insert(value.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        model::{PodObject, PolicyObject},
        source::folder::manifest,
    };

    fn read(commons: &mut Commons, object: &Value) -> Object {
        let [mut object] = manifest::parse(&object.to_string()).unwrap().try_into().unwrap();
        // No copy, which would have its parts too.
        let before = format!("{object:?}");
        commons.share(&mut object);
        assert_eq!(format!("{object:?}"), before);
        object
    }

    fn pod(commons: &mut Commons, name: &str, app: &str) -> PodObject {
        let ports = json!([{"name": "http", "containerPort": 80}]);
        let object = json!({
            "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": "n", "containers": [{"ports": ports}]},
        });
        let Object::Pod(_, _, pod) = read(commons, &object) else { panic!("{object}") };
        pod
    }

    fn policy(commons: &mut Commons, namespace: &str, port: u16) -> PolicyObject {
        let app = |app: &str| json!({"matchLabels": {"app": app}});
        let from = json!([{"namespaceSelector": app("a"), "podSelector": app("a")}]);
        let object = json!({
            "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": namespace},
            "spec": {"podSelector": app("a"), "ingress": [{"from": from, "ports": [{"port": port}]}]},
        });
        let Object::Policy(_, _, policy) = read(commons, &object) else { panic!("{object}") };
        policy
    }

    #[test]
    fn what_replicas_have_in_common_is_there_once() {
        let mut commons = Commons::default();
        let [a, b] = ["a", "b"].map(|name| pod(&mut commons, name, "web"));
        assert!(Arc::ptr_eq(&a.labels, &b.labels) && Arc::ptr_eq(&a.ports, &b.ports) && Arc::ptr_eq(&a.node, &b.node));
        let other = pod(&mut commons, "c", "db");
        assert!(!Arc::ptr_eq(&a.labels, &other.labels));
    }

    #[test]
    fn rules_that_are_equal_are_there_once_and_selectors_also_where_rules_differ() {
        let mut commons = Commons::default();
        let [a, b, other] = [("a", 80), ("b", 80), ("c", 81)].map(|(name, port)| policy(&mut commons, name, port));
        let rules = |policy: &PolicyObject| policy.ingress.clone().unwrap();
        assert!(Arc::ptr_eq(&rules(&a), &rules(&b)));
        assert!(!Arc::ptr_eq(&rules(&a), &rules(&other)));
        // The pool, three subjects, and namespaces and pods of two lists of rules.
        assert_eq!(a.subject.holders(), 1 + 3 + 2 * 2);
    }

    #[test]
    fn what_nobody_has_any_more_goes() {
        let mut commons = Commons::default();
        let kept = pod(&mut commons, "kept", "kept");
        for round in 0..3 * FEW {
            let labels = [("app".into(), round.to_string().into())].into_iter().collect();
            let goes = PodObject { labels: Arc::new(labels), ..PodObject::default() };
            commons.share(&mut Object::Pod("default".into(), "goes".into(), goes));
        }
        assert!(commons.labels.known.len() <= FEW + 1, "{}", commons.labels.known.len());
        assert!(Arc::ptr_eq(&kept.labels, &pod(&mut commons, "again", "kept").labels));
    }
}

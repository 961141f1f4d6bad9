//! A policy that says something else by now, which waits.

use osmia_maps::catalogue::Catalogue;
use serde_json::{Value, json};

use super::{super::*, sharing::Lab};
use crate::{
    model::{Event, Name, PolicyObject, policy::Rule},
    source::{folder::manifest, object::Object},
};

fn policy(spec: &Value) -> PolicyObject {
    let object = json!({"kind": "NetworkPolicy", "metadata": {"namespace": "a", "name": "p"}, "spec": spec});
    match manifest::parse(&object.to_string()).unwrap().pop() {
        Some(Object::Policy(_, _, policy)) => policy,
        other => panic!("{other:?}"),
    }
}

/// What an endpoint receives and sends is held to; `None`: it is not isolated.
type Held = [Option<Vec<Arc<[Rule]>>>; 2];

fn held(policies: &Policies, slot: u32) -> Held {
    let rules = policies.rules(slot);
    let of = |number| {
        policies.sets.get(number).map(|set| set.key.policies.iter().map(|(_, rules)| Arc::clone(rules)).collect())
    };
    [of(rules.ingress), of(rules.egress)]
}

#[test]
fn whom_it_selects_by_now_is_held_to_that_and_whom_it_selected_alone_to_what_it_said() {
    let old = policy(&json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress", "Egress"],
                             "ingress": [{"ports": [{"port": 80}]}]}));
    let between =
        policy(&json!({"podSelector": {"matchLabels": {"app": "between"}}, "ingress": [{"ports": [{"port": 81}]}]}));
    let new =
        policy(&json!({"podSelector": {"matchLabels": {"tier": "front"}}, "ingress": [{"ports": [{"port": 443}]}]}));
    let mut lab = Lab::default();
    lab.is(json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    let front = json!({"tier": "front"});
    let labels = [
        json!({"app": "web"}),
        front.clone(),
        json!({"app": "web", "tier": "front"}),
        json!({}),
        json!({"app": "between"}),
    ];
    for (slot, labels) in (1..).zip(labels) {
        let (name, ip) = (format!("p{slot}"), format!("10.0.0.{slot}"));
        lab.pod(&name, &ip, labels);
        lab.endpoint(slot, &name, &ip);
    }
    let tell = |lab: &mut Lab, event: Event| {
        let About::Policy(touched, _) = about(&event) else { unreachable!() };
        lab.cluster.apply(event);
        lab.policies.update(&lab.cluster, [touched]);
    };
    let key = || Name::new("a", "p");
    let is = |policy: &PolicyObject| -> Held {
        [&policy.ingress, &policy.egress].map(|rules| rules.clone().map(|rules| vec![rules]))
    };
    let open: Held = [None, None];
    let all = |lab: &Lab| [1, 2, 3, 4, 5].map(|slot| held(&lab.policies, slot));
    tell(&mut lab, Event::Policy(key(), old.clone()));
    assert_eq!(all(&lab), [is(&old), open.clone(), is(&old), open.clone(), open.clone()]);

    tell(&mut lab, Event::Waits(key(), vec![between.clone(), new.clone()]));
    let [_, sends] = is(&old);
    let [receives, _] = is(&new);
    assert_eq!(all(&lab), [is(&old), is(&new), [receives, sends], open.clone(), is(&between)]);
    lab.pod("p4", "10.0.0.4", front);
    assert_eq!(held(&lab.policies, 4), is(&new));
    let locals = lab.policies.locals.clone();
    let anew = Policies::resume(&Catalogue::default(), &Pinned::default(), &lab.cluster, &locals).policies;
    assert_eq!([1, 2, 3, 4, 5].map(|slot| held(&anew, slot)), all(&lab), "a start from nothing says the same");

    tell(&mut lab, Event::Policy(key(), new.clone()));
    assert_eq!(all(&lab), [open.clone(), is(&new), is(&new), is(&new), open.clone()]);
    // What went waits too, and isolates until it is told.
    tell(&mut lab, Event::Waits(key(), vec![]));
    assert_eq!(held(&lab.policies, 2), is(&new));
    tell(&mut lab, Event::Waits(key(), vec![old.clone()]));
    assert_eq!(held(&lab.policies, 1), is(&old));
    tell(&mut lab, Event::PolicyGone(key()));
    assert_eq!(all(&lab), [const { [None, None] }; 5]);
}

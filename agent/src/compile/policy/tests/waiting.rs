//! A policy that says something else by now, which waits.

use osmia_oracle::Verdict as Said;
use serde_json::{Value, json};

use super::{sharing::Lab, *};
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
        json!({"app": "between", "tier": "front"}),
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
    let all = |lab: &Lab| [1, 2, 3, 4, 5, 6].map(|slot| held(&lab.policies, slot));
    tell(&mut lab, Event::Policy(key(), old.clone()));
    assert_eq!(all(&lab), [is(&old), open.clone(), is(&old), open.clone(), open.clone(), open.clone()]);

    tell(&mut lab, Event::Waits(key(), vec![between.clone(), new.clone()]));
    let [_, sends] = is(&old);
    let [receives, _] = is(&new);
    assert_eq!(all(&lab), [is(&old), is(&new), [receives, sends], open.clone(), is(&between), is(&new)]);
    lab.pod("p4", "10.0.0.4", front);
    assert_eq!(held(&lab.policies, 4), is(&new));
    let locals = lab.policies.locals.clone();
    let anew = Policies::resume(&Catalogue::default(), &Pinned::default(), &lab.cluster, &locals).policies;
    assert_eq!([1, 2, 3, 4, 5, 6].map(|slot| held(&anew, slot)), all(&lab), "a start from nothing says the same");

    tell(&mut lab, Event::Policy(key(), new.clone()));
    assert_eq!(all(&lab), [open.clone(), is(&new), is(&new), is(&new), open.clone(), is(&new)]);
    // What went waits too, and isolates until it is told.
    tell(&mut lab, Event::Waits(key(), vec![]));
    assert_eq!(held(&lab.policies, 2), is(&new));
    tell(&mut lab, Event::Waits(key(), vec![old.clone()]));
    assert_eq!(held(&lab.policies, 1), is(&old));
    tell(&mut lab, Event::PolicyGone(key()));
    assert_eq!(all(&lab), [const { [None, None] }; 6]);
}

/// The cluster of a story in which a policy may wait.
#[derive(Default)]
struct Story {
    /// As it is.
    is: Objects,
    /// As it is told.
    told: Objects,
    /// The policy that waits, for how many happenings more, and the last of its own.
    waiting: Option<(Name, u8, Happening)>,
    /// What it said since, and the cluster as if that were told.
    said: Vec<(PolicyObject, Objects)>,
    cluster: Cluster,
}

impl Story {
    /// A policy that comes is one that is there, if any is, and the one that waits, if one does.
    fn aimed(&self, happening: &Happening, at: u8) -> Happening {
        let mut aimed = happening.clone();
        let there: Vec<&Name> = match &self.waiting {
            Some((name, ..)) => vec![name],
            None => self.cluster.policies.keys().collect(),
        };
        if let Happening::Is(object) = &mut aimed
            && object["kind"] == "NetworkPolicy"
            && !there.is_empty()
        {
            let name = there[usize::from(at) % there.len()];
            object["metadata"]["namespace"] = name.namespace().into();
            object["metadata"]["name"] = name.name().into();
        }
        aimed
    }

    fn happens(&mut self, happening: &Happening, waits_for: u8) -> Vec<Touched> {
        let mut touched = self.release();
        let mut now = Cluster::default();
        self.is.apply(happening, &mut now);
        let policy = match happening {
            Happening::Is(_) => now.policies.pop_first(),
            Happening::Gone("NetworkPolicy", namespace, name) => {
                Some((Name::new(namespace, name), PolicyObject::default()))
            }
            _ => None,
        };
        let left = match (&policy, &self.waiting) {
            (Some((name, _)), Some((waits, left, _))) => (name == waits).then_some(*left),
            (Some((name, _)), None) => self.cluster.policies.contains_key(name).then_some(waits_for),
            (None, _) => None,
        };
        let Some(((name, policy), left)) = policy.zip(left.filter(|left| *left > 0)) else {
            touched.extend(self.told.apply(happening, &mut self.cluster));
            self.said.iter_mut().for_each(|(_, objects)| drop(objects.apply(happening, &mut Cluster::default())));
            return touched;
        };
        if matches!(happening, Happening::Is(_)) {
            self.said.push((policy, self.is.clone()));
        }
        let said = self.said.iter().map(|(policy, _)| policy.clone()).collect();
        self.cluster.apply(Event::Waits(Name::clone(&name), said));
        touched.push(Touched::Policy(Name::clone(&name)));
        self.waiting = Some((name, left, happening.clone()));
        touched
    }

    /// One happening is over; what waits long enough is told.
    fn release(&mut self) -> Vec<Touched> {
        match self.waiting.take() {
            Some((_, 1, last)) => {
                self.said.clear();
                self.told.apply(&last, &mut self.cluster)
            }
            Some((name, left, last)) => {
                self.waiting = Some((name, left - 1, last));
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// What the oracle says of each endpoint and direction where the last of what the policy said, by which it isolates the one in the other, is
    /// told; else of what is told.
    fn wanted(&self) -> Answers {
        let locals = self.told.locals();
        let mut wanted = truth(&self.told.world(), &locals);
        let name = self.waiting.iter().map(|(name, ..)| name);
        for (name, (_, objects)) in name.flat_map(|name| self.said.iter().map(move |said| (name, said))) {
            let world = objects.world();
            let truth = truth(&world, &locals);
            let is_it = |policy: &&k8s_openapi::api::networking::v1::NetworkPolicy| {
                let [namespace, own] = [&policy.metadata.namespace, &policy.metadata.name].map(Option::as_deref);
                (namespace, own) == (Some(name.namespace()), Some(name.name()))
            };
            let alone = World { policies: world.policies.iter().filter(is_it).cloned().collect(), ..world.clone() };
            let (peer, traffic) = questions()[0];
            for (slot, local) in &locals {
                for (direction, asked) in [(Direction::Ingress, Asked::Ingress), (Direction::Egress, Asked::Egress)] {
                    if alone.held(&endpoint(local), asked, peer, traffic) != Said::NotIsolated {
                        let key = (*slot, direction);
                        wanted.insert(key, truth[&key].clone());
                    }
                }
            }
        }
        wanted
    }
}

proptest! {
    #![proptest_config(config(6))]

    #[test]
    fn a_policy_that_waits_leaves_what_the_oracle_says_of_the_last_that_isolates(
        story in generate::story(),
        more in prop::collection::vec(generate::happening(), 16),
        waits in prop::collection::vec(0..8_u8, 1..20),
    ) {
        let mut now = Story::default();
        let budget = Budget::default();
        let first =
            Policies::resume_within(budget, &Catalogue::default(), &Pinned::default(), &now.cluster, &BTreeMap::new());
        let (mut policies, mut maps) = (first.policies, Maps::default());
        maps.apply(&first.change, |_, _| Ok(()))?;
        let more = more.iter().map(|happening| (true, happening));
        let story = story.iter().map(|happening| (false, happening)).chain(more);
        for ((is_aimed, happening), waits_for) in story.zip(waits.iter().cycle()) {
            let happening = &if is_aimed { now.aimed(happening, *waits_for) } else { happening.clone() };
            let (before, were) = (now.wanted(), now.told.locals());
            let touched = now.happens(happening, *waits_for);
            if let Happening::Deleted(pod) = happening {
                maps.remove(pod + 1);
            }
            let change = policies.update(&now.cluster, touched);
            let (wanted, locals) = (now.wanted(), now.told.locals());
            let ends = Ends::new((&before, &were), (&wanted, &locals));
            maps.apply(&change, |maps, write| {
                ends.hold(&rows(maps, &locals), &|| format!("after {write:?} of {happening:?}"))
            })?;
            maps.attach(&policies, &locals);
            prop_assert_eq!(&rows(&maps, &locals), &wanted, "after {:?}, waiting {:?}", happening, now.waiting);
            maps.apply(&policies.collect(&now.cluster), |_, _| Ok(()))?;
            let fresh = fresh(budget, &now.cluster, &locals)?;
            prop_assert_eq!(&rows(&fresh, &locals), &wanted, "another start says something else after {:?}", happening);
        }
    }
}

//! A story, event by event: the rows that a change writes, one after the other, and what the programs make of packets meanwhile, afterwards,
//! and of flows that were opened before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use osmia_agent::compile::policy::{Cookie, Local, Pinned, Policies, Touched};
use osmia_agent::model::{Cluster, Event, policy::Direction};
use osmia_agent::source::{folder::manifest, object::Object};
use osmia_maps::catalogue::Catalogue;
use osmia_maps::layout::{DropReason, flow::EPOCH_DENIED};
use osmia_oracle::stories::{Happening, Objects};
use osmia_oracle::{Endpoint, Verdict};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};

use super::ask::{self, Question};
use super::plane::{Outcome, Plane};
use super::truth::{Answer, Truth};

/// Questions after an event, but for the last one of a story, when all are asked.
const AFTER: usize = 400;
/// Questions between two writes.
const BETWEEN: usize = 40;
/// Flows that are opened after an event, for the next one.
const LIVING: usize = 40;

/// `xorshift64`: the same questions of a story every time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % end.max(1)
    }

    fn some(&mut self, of: &[Question], many: usize) -> Vec<Question> {
        if many >= of.len() {
            return of.to_vec();
        }
        (0..many).map(|_| of[self.below(of.len())]).collect()
    }
}

/// A flow that was allowed.
struct Living {
    question: Question,
    port: u16,
    /// Where its answers are sent.
    answers: (IpAddr, u16),
}

/// Follows a story on a plane without rows.
pub(crate) fn follow(plane: &mut Plane, story: &[Happening]) -> Result<(), TestCaseError> {
    let mut told = Story { plane, random: Random(0x6f73_6d69_6100_0004), living: Vec::new() };
    told.run(story)
}

struct Story<'a> {
    plane: &'a mut Plane,
    random: Random,
    living: Vec<Living>,
}

impl Story<'_> {
    fn run(&mut self, story: &[Happening]) -> Result<(), TestCaseError> {
        let (mut objects, mut cluster) = (Objects::default(), Cluster::default());
        // As an agent's first start.
        let start = Policies::resume(&Catalogue::default(), &Pinned::default(), &cluster, &BTreeMap::new());
        let mut policies = start.policies;
        self.plane.apply(&start.change, |_, _| Ok(()))?;
        let mut old = Truth::of(&objects);
        for (i, happening) in story.iter().enumerate() {
            let before = objects.added().clone();
            if let Happening::Deleted(pod) = happening {
                self.plane.remove_endpoint(*pod)?;
            }
            let touched = apply(happening, &mut objects, &mut cluster);
            let change = policies.update(&cluster, [touched]);
            let new = Truth::of(&objects);
            let staying = before.intersection(objects.added()).copied().collect();
            let questions = ask::all(&staying);
            let random = &mut self.random;
            self.plane.apply(&change, |plane, step| {
                for question in random.some(&questions, BETWEEN) {
                    let (Some(old), Some(new)) = (old.answer(&question), new.answer(&question)) else { continue };
                    let (outcome, _) = asked(plane, &question)?;
                    let fits = outcome != Outcome::Passed || old.passes() || new.passes();
                    prop_assert!(fits, "{step}, {question:?} passed, as neither before nor after {happening:?}");
                }
                Ok(())
            })?;
            if let Happening::Added(pod) | Happening::AddedUnnamed(pod) = happening
                && !before.contains(pod)
            {
                self.plane.put_endpoint(*pod, policies.rules(pod + 1))?;
            }
            self.live(&new, &staying, happening)?;
            let many = if i + 1 == story.len() { usize::MAX } else { AFTER };
            let questions = ask::all(objects.added());
            let cookies: BTreeMap<u32, Cookie> = policies.cookies().map(|(n, cookie)| (n, cookie.clone())).collect();
            for question in self.random.some(&questions, many) {
                if let Some(answer) = new.answer(&question) {
                    self.holds(&question, &answer, &cookies, happening)?;
                }
            }
            self.plane.apply(&policies.collect(&cluster), |_, _| Ok(()))?;
            for question in self.random.some(&questions, LIVING) {
                self.open(&question)?;
            }
            old = new;
        }
        Ok(())
    }

    /// The programs' decision on a first packet, its reason and the rules that it names.
    fn holds(
        &mut self,
        question: &Question,
        answer: &Answer,
        cookies: &BTreeMap<u32, Cookie>,
        happening: &Happening,
    ) -> Result<(), TestCaseError> {
        let what = || format!("{question:?} after {happening:?}: {answer:?}");
        let (outcome, named) = asked(self.plane, question)?;
        let denied = |verdict: &Option<Verdict>| verdict.as_ref().is_some_and(|verdict| !verdict.passes());
        match (outcome, denied(&answer.egress), denied(&answer.ingress)) {
            (Outcome::Passed, false, false) => {
                for (cookie, verdict, direction) in
                    [(named.0, &answer.egress, Direction::Egress), (named.1, &answer.ingress, Direction::Ingress)]
                {
                    match verdict {
                        Some(Verdict::Allowed(rules)) => {
                            let is_one = matches!(cookies.get(&cookie), Some(Cookie::Rule { policy, direction: of, rule })
                                if *of == direction
                                    && rules.iter().any(|r| r.policy == policy.name && r.namespace == policy.namespace && r.rule == *rule));
                            prop_assert!(is_one, "{}: allowed by {:?}", what(), cookies.get(&cookie));
                        }
                        _ => prop_assert_eq!(cookie, 0, "{}", what()),
                    }
                }
            }
            (Outcome::Dropped(_, cookie), egress, ingress) if egress || ingress => {
                // Who sends is asked first.
                let (reason, verdict) = match egress {
                    true => (DropReason::PolicyEgress, &answer.egress),
                    false => (DropReason::PolicyIngress, &answer.ingress),
                };
                prop_assert!(outcome.is(reason), "{}: {outcome:?}", what());
                let named = match cookies.get(&cookie) {
                    Some(Cookie::Isolated(_, by)) => {
                        by.iter().map(|by| (by.namespace.clone(), by.name.clone())).collect()
                    }
                    other => vec![("no isolation".to_owned(), format!("{other:?}"))],
                };
                let mut isolating = match verdict {
                    Some(Verdict::Denied(by)) => by.clone(),
                    _ => Vec::new(),
                };
                isolating.sort();
                prop_assert_eq!(named, isolating, "{}", what());
            }
            _ => prop_assert!(false, "{}: {outcome:?}", what()),
        }
        Ok(())
    }

    /// Flows that were opened before the event go on by what holds after it, whichever end sends next.
    fn live(&mut self, new: &Truth, staying: &BTreeSet<u32>, happening: &Happening) -> Result<(), TestCaseError> {
        for Living { question, port, answers } in std::mem::take(&mut self.living) {
            let key = question.key(port);
            let stays = [question.from.pod, question.to.pod].iter().flatten().all(|pod| staying.contains(pod));
            if let Some(answer) = new.answer(&question).filter(|_| stays) {
                let by_answer = self.random.below(2) == 1;
                let outcome = match by_answer {
                    true => self.plane.answerer(&question, &question.answer(answers.0, answers.1))?,
                    false => self.plane.opener(&question, &question.more(port))?.0,
                };
                let passes = outcome == Outcome::Passed;
                let what = format!("living {question:?}, by an answer {by_answer}, after {happening:?}: {answer:?}");
                prop_assert_eq!(passes, answer.passes(), "{}: {:?}", what, outcome);
                let ended = self.plane.entry(&key).is_none_or(|entry| entry.src_epoch == EPOCH_DENIED);
                prop_assert_eq!(passes, !ended, "{}: its entry", what);
                if !passes && !question.is_outbound() {
                    // Nor does the other end's next packet bring it back as a flow of its own.
                    let outcome = match by_answer {
                        true => self.plane.opener(&question, &question.more(port))?.0,
                        false => self.plane.answerer(&question, &question.answer(answers.0, answers.1))?,
                    };
                    prop_assert!(outcome != Outcome::Passed, "{}: back again", what);
                }
            }
            self.plane.forget(&key);
        }
        Ok(())
    }

    /// Opens a flow that the next event finds, if it is allowed.
    fn open(&mut self, question: &Question) -> Result<(), TestCaseError> {
        if !question.has_answers() {
            return Ok(());
        }
        let port = self.plane.port();
        let (outcome, left) = self.plane.first(question, port)?;
        if outcome == Outcome::Passed {
            let outbound = question.is_outbound();
            let answers = if outbound { Plane::masqueraded(&left) } else { (question.from.address, port) };
            self.living.push(Living { question: *question, port, answers });
        }
        Ok(())
    }
}

/// What becomes of a question's first packet, and the cookies of its flow's entry, which is gone again afterwards.
fn asked(plane: &mut Plane, question: &Question) -> Result<(Outcome, (u32, u32)), TestCaseError> {
    let port = plane.port();
    let (outcome, _) = plane.first(question, port)?;
    if outcome != Outcome::Passed {
        return Ok((outcome, (0, 0)));
    }
    let key = question.key(port);
    let entry = plane.entry(&key).expect("a packet passed and left no entry");
    plane.forget(&key);
    Ok((outcome, (entry.egress_cookie, entry.ingress_cookie)))
}

/// Makes it happen, to the cluster as a source would tell it.
fn apply(happening: &Happening, objects: &mut Objects, cluster: &mut Cluster) -> Touched {
    objects.apply(happening);
    let (event, touched) = match happening {
        Happening::Added(pod) | Happening::AddedUnnamed(pod) => {
            let Endpoint { pod: named, addresses } = objects.endpoint(*pod);
            return Touched::Endpoint(pod + 1, Some(Local { pod: named, addresses, ..Local::default() }));
        }
        Happening::Deleted(pod) => return Touched::Endpoint(pod + 1, None),
        Happening::Is(object) => {
            let read = manifest::parse(&object.to_string()).unwrap_or_else(|refused| panic!("{}", refused.why));
            match read.into_iter().next().expect("an object that matters") {
                Object::Namespace(name, namespace) => {
                    (Event::Namespace(name.clone(), namespace), Touched::Namespace(name))
                }
                Object::Pod(namespace, name, pod) => {
                    (Event::Pod((namespace.clone(), name.clone()), pod), Touched::Pod((namespace, name)))
                }
                Object::Policy(namespace, name, policy) => {
                    (Event::Policy((namespace.clone(), name.clone()), policy), Touched::Policy((namespace, name)))
                }
                Object::Node(..) => panic!("no story has nodes"),
            }
        }
        Happening::Gone(kind, namespace, name) => {
            let key = (namespace.clone(), name.clone());
            match *kind {
                "Namespace" => (Event::NamespaceGone(name.clone()), Touched::Namespace(name.clone())),
                "Pod" => (Event::PodGone(key.clone()), Touched::Pod(key)),
                _ => (Event::PolicyGone(key.clone()), Touched::Policy(key)),
            }
        }
    };
    cluster.apply(event);
    touched
}

//! A story, told some events at a time: the rows that each change writes, one after the other, and what the programs make of packets
//! meanwhile, afterwards, and of flows that were opened before. Now and then the agent is killed between two writes, and another goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use osmia_agent::compile::policy::{About, Change, Cookie, Local, Pinned, Policies, Resumed, Touched, about};
use osmia_agent::model::{Cluster, Event, Name, policy::Direction};
use osmia_agent::source::{folder::manifest, object::Key};
use osmia_maps::catalogue::{Catalogue, Line, PodName};
use osmia_maps::layout::{DropReason, flow::EPOCH_DENIED};
use osmia_oracle::stories::{Happening, Objects};
use osmia_oracle::{Endpoint, Verdict};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};

use super::ask::{self, Question};
use super::explain::Explain;
use super::plane::{Outcome, Plane};
use super::steps::{Book, Step};
use super::truth::{Answer, Truth};

/// Questions after an event, but for the last one of a story, when all are asked.
const AFTER: usize = 400;
/// Questions between two writes.
const BETWEEN: usize = 40;
/// Flows that are opened after an event, for the next one.
const LIVING: usize = 40;
/// Questions that the process is asked after a story.
const TOLD: usize = 2;
/// Events that are taken in at once, at most.
const AT_ONCE: usize = 3;
/// One in so many changes is the last one of its agent.
const DEADLY: usize = 5;
/// Lives that such a change may cost at most.
const LIVES: usize = 3;

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

/// What the stories had in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    /// Questions by what became of them: passed, dropped.
    pub(crate) passed: usize,
    pub(crate) dropped: usize,
    /// Between two writes.
    pub(crate) between: usize,
    /// Agents that were killed, and of those how many before all their rows were written.
    pub(crate) killed: usize,
    pub(crate) torn: usize,
    /// Living flows by what became of them.
    pub(crate) went_on: usize,
    pub(crate) cut: usize,
}

/// Follows a story on a plane without rows.
pub(crate) fn follow(
    plane: &mut Plane,
    explain: &Explain,
    story: &[Happening],
    seen: &mut Seen,
) -> Result<(), TestCaseError> {
    let cluster = Cluster::default();
    // As an agent's first start.
    let mut start = Policies::resume(&Catalogue::default(), &Pinned::default(), &cluster, &BTreeMap::new());
    let mut book = Book::default();
    let steps = book.change(&mut start.policies, &start.change, true);
    let mut told = Story {
        plane,
        explain,
        random: Random(0x6f73_6d69_6100_0004),
        living: Vec::new(),
        objects: Objects::default(),
        cluster,
        policies: start.policies,
        book,
        seen,
    };
    told.take(&steps, &[], &|_| None, &[])?;
    let mut rest = story;
    while !rest.is_empty() {
        let (now, then) = rest.split_at((1 + told.random.below(AT_ONCE)).min(rest.len()));
        told.happen(now, then.is_empty())?;
        rest = then;
    }
    Ok(())
}

/// Whether a packet may pass in the middle of a change; `None`: nobody can tell.
type MayPass<'a> = &'a dyn Fn(&Question) -> Option<bool>;

struct Story<'a> {
    plane: &'a mut Plane,
    explain: &'a Explain,
    random: Random,
    living: Vec<Living>,
    objects: Objects,
    cluster: Cluster,
    policies: Policies,
    book: Book,
    seen: &'a mut Seen,
}

impl Story<'_> {
    /// Some events at once, and everything that is asked about them.
    fn happen(&mut self, now: &[Happening], last: bool) -> Result<(), TestCaseError> {
        let (old, before) = (Truth::of(&self.objects), self.objects.added().clone());
        let mut touched = Vec::new();
        for happening in now {
            if let Happening::Deleted(pod) = happening {
                self.plane.remove_endpoint(*pod)?;
            }
            touched.push(apply(happening, &mut self.objects, &mut self.cluster));
            self.name(happening);
        }
        let change = self.policies.update(&self.cluster, touched);
        let new = Truth::of(&self.objects);
        let gone = |pod: &u32| now.iter().any(|h| matches!(h, Happening::Deleted(of) if of == pod));
        let staying = before.intersection(self.objects.added()).copied().filter(|pod| !gone(pod)).collect();
        let questions = ask::all(&staying);
        let may_pass = |question: &Question| Some(old.answer(question)?.passes() || new.answer(question)?.passes());
        self.enforce(&change, &questions, &may_pass, &new, now)?;
        for pod in self.objects.added().clone() {
            if !self.plane.has_endpoint(pod)? {
                self.plane.put_endpoint(pod, self.policies.rules(pod + 1))?;
            }
        }
        self.live(&new, &staying, now)?;
        let questions = ask::all(self.objects.added());
        let cookies: BTreeMap<u32, Cookie> = self.policies.cookies().map(|(n, cookie)| (n, cookie.clone())).collect();
        let many = if last { usize::MAX } else { AFTER };
        for question in self.random.some(&questions, many) {
            if let Some(answer) = new.answer(&question) {
                self.holds(&question, &answer, &cookies, now)?;
            }
        }
        if last {
            for question in self.random.some(&questions, TOLD) {
                if let Some(answer) = new.answer(&question) {
                    self.explain.tells(&question, &answer, &self.book.catalogue)?;
                }
            }
        }
        let rest = self.book.rest(&mut self.policies, &self.cluster);
        self.take(&rest, &[], &|_| None, now)?;
        for question in self.random.some(&questions, LIVING) {
            self.open(&question)?;
        }
        Ok(())
    }

    /// Tells the catalogue whose endpoint is in a slot.
    fn name(&mut self, happening: &Happening) {
        let line = match happening {
            Happening::Added(pod, _) | Happening::AddedUnnamed(pod) => {
                let named = self.objects.endpoint(*pod).pod;
                Line::Endpoint { slot: pod + 1, pod: named.map(|(namespace, name)| PodName { namespace, name }) }
            }
            Happening::Deleted(pod) => Line::NoEndpoint { slot: pod + 1 },
            Happening::Is(_) | Happening::Gone(..) => return,
        };
        self.book.catalogue.take(line);
    }

    /// Brings a change into force. The agent that does it may be killed before the last step, and so may those that go on.
    fn enforce(
        &mut self,
        change: &Change,
        questions: &[Question],
        may_pass: MayPass<'_>,
        new: &Truth,
        now: &[Happening],
    ) -> Result<(), TestCaseError> {
        let steps = self.book.change(&mut self.policies, change, false);
        if self.random.below(DEADLY) != 0 {
            return self.take(&steps, questions, may_pass, now);
        }
        let cut = self.random.below(steps.len() + 1);
        self.take(&steps[..cut], questions, may_pass, now)?;
        for life in (0..1 + self.random.below(LIVES)).rev() {
            self.seen.killed += 1;
            // What passes as the dead agent left it may pass until the next one is done.
            let mut left = Vec::new();
            for question in self.random.some(questions, 2 * BETWEEN) {
                left.push((question, asked(self.plane, self.explain, &question)?.0 == Outcome::Passed));
            }
            let asked: Vec<Question> = left.iter().map(|(question, _)| *question).collect();
            let passed = |question: &Question| left.iter().any(|(of, passes)| of == question && *passes);
            let may_pass = |question: &Question| Some(passed(question) || new.answer(question)?.passes());
            let Resumed { mut policies, change, unknown } =
                Policies::resume(&self.book.catalogue, &self.plane.pinned()?, &self.cluster, &self.locals());
            prop_assert_eq!(unknown, None, "after {:?}", now);
            let steps = self.book.change(&mut policies, &change, true);
            let taken = if life == 0 { steps.len() } else { self.random.below(steps.len() + 1) };
            self.seen.torn += usize::from(!change.is_empty());
            self.take(&steps[..taken], &asked, &may_pass, now)?;
            self.policies = policies;
        }
        Ok(())
    }

    fn locals(&self) -> BTreeMap<u32, Local> {
        self.objects.added().iter().map(|pod| (pod + 1, local(&self.objects, *pod))).collect()
    }

    /// Takes steps; after each row some packets are asked about.
    fn take(
        &mut self,
        steps: &[Step],
        questions: &[Question],
        may_pass: MayPass<'_>,
        now: &[Happening],
    ) -> Result<(), TestCaseError> {
        for step in steps {
            let write = match step {
                Step::Line(line) => {
                    self.book.catalogue.take(line.clone());
                    continue;
                }
                Step::Row(write) => write,
            };
            self.plane.write(write)?;
            for question in self.random.some(questions, BETWEEN) {
                let Some(may_pass) = may_pass(&question) else { continue };
                let (outcome, _) = asked(self.plane, self.explain, &question)?;
                self.seen.between += 1;
                let fits = outcome != Outcome::Passed || may_pass;
                prop_assert!(fits, "after {write:?}, {question:?} passed, as neither before nor after {now:?}");
            }
        }
        Ok(())
    }

    /// The programs' decision on a first packet, its reason and the rules that it names.
    fn holds(
        &mut self,
        question: &Question,
        answer: &Answer,
        cookies: &BTreeMap<u32, Cookie>,
        now: &[Happening],
    ) -> Result<(), TestCaseError> {
        let what = || format!("{question:?} after {now:?}: {answer:?}");
        let (outcome, named) = asked(self.plane, self.explain, question)?;
        match outcome {
            Outcome::Passed => self.seen.passed += 1,
            _ => self.seen.dropped += 1,
        }
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
    fn live(&mut self, new: &Truth, staying: &BTreeSet<u32>, now: &[Happening]) -> Result<(), TestCaseError> {
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
                if passes {
                    self.seen.went_on += 1
                } else {
                    self.seen.cut += 1
                }
                let what = format!("living {question:?}, by an answer {by_answer}, after {now:?}: {answer:?}");
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
            self.plane.forget(&key)?;
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

/// What becomes of a question's first packet, as `explain` says too, and the cookies of its flow's entry, which is gone again afterwards.
fn asked(plane: &mut Plane, explain: &Explain, question: &Question) -> Result<(Outcome, (u32, u32)), TestCaseError> {
    let port = plane.port();
    let (outcome, _) = plane.first(question, port)?;
    let mut named = (0, 0);
    if outcome == Outcome::Passed {
        let key = question.key(port);
        let entry = plane.entry(&key).expect("a packet passed and left no entry");
        plane.forget(&key)?;
        named = (entry.egress_cookie, entry.ingress_cookie);
    }
    explain.agrees(question, outcome, named)?;
    Ok((outcome, named))
}

fn local(objects: &Objects, pod: u32) -> Local {
    let Endpoint { pod, uid, addresses } = objects.endpoint(pod);
    Local { pod: pod.map(Name::from), uid: uid.unwrap_or_default(), addresses }
}

/// Makes it happen, to the cluster as a source would tell it.
fn apply(happening: &Happening, objects: &mut Objects, cluster: &mut Cluster) -> Touched {
    objects.apply(happening);
    let event = match happening {
        Happening::Added(pod, _) | Happening::AddedUnnamed(pod) => {
            return Touched::Endpoint(pod + 1, Some(local(objects, *pod)));
        }
        Happening::Deleted(pod) => return Touched::Endpoint(pod + 1, None),
        Happening::Is(object) => {
            let read = manifest::parse(&object.to_string()).unwrap_or_else(|refused| panic!("{}", refused.why));
            let object = read.into_iter().next().expect("an object that matters");
            let key = Key::of(&object);
            object.told(&key)
        }
        Happening::Gone("Namespace", _, name) => Event::NamespaceGone(name.clone()),
        Happening::Gone("Pod", namespace, name) => Event::PodGone(Name::new(namespace, name)),
        Happening::Gone(_, namespace, name) => Event::PolicyGone(Name::new(namespace, name)),
    };
    let About::Policy(touched, _) = about(&event) else { panic!("no story has nodes") };
    cluster.apply(event);
    touched
}

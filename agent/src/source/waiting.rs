//! What a policy said since it was told, while that waits to be told.
//!
//! Invariant: whom any of it isolated, what is kept of it isolates, in each direction. What it said last stays as it is.

use serde::{Deserialize, Serialize};

use crate::model::{PolicyObject, Selector, policy::Direction};

/// More than this is not kept of one policy: it isolates every pod of its namespace then, but whom it says to isolate last it allows what
/// it says.
const AT_MOST: usize = 16;

/// A policy that waits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Waiting {
    /// The last one last.
    said: Vec<PolicyObject>,
    is_gone: bool,
}

impl Waiting {
    /// It says this now.
    pub(super) fn say(&mut self, now: PolicyObject) {
        self.is_gone = false;
        self.said.retain(|before| !isolates_all_of(&now, before));
        if self.said.len() == AT_MOST {
            let none = || Some([].into());
            let all = PolicyObject {
                uid: now.uid.clone(),
                subject: Selector::default(),
                ingress: none(),
                egress: none(),
                refused: Vec::new(),
            };
            self.said = vec![all];
        }
        self.said.push(now);
    }

    /// It is gone.
    pub(super) fn go(&mut self) {
        self.is_gone = true;
    }

    /// What it says now; `None`: it is gone.
    pub(super) fn now(&self) -> Option<&PolicyObject> {
        self.said.last().filter(|_| !self.is_gone)
    }

    /// What it said, the last one last.
    pub(super) fn said(&self) -> &[PolicyObject] {
        &self.said
    }
}

fn isolates_all_of(one: &PolicyObject, other: &PolicyObject) -> bool {
    let selects = one.subject.0.is_empty() || one.subject == other.subject;
    let isolates = |direction| one.rules(direction).is_some() || other.rules(direction).is_none();
    selects && [Direction::Ingress, Direction::Egress].into_iter().all(isolates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Labels, Requirement};

    fn policy(app: &str, ingress: bool, egress: bool) -> PolicyObject {
        let requirement = (!app.is_empty()).then(|| Requirement::Exists(app.into()));
        let rules = |is: bool| is.then(|| [].into());
        PolicyObject {
            subject: Selector(requirement.into_iter().collect()),
            ingress: rules(ingress),
            egress: rules(egress),
            ..PolicyObject::default()
        }
    }

    #[test]
    fn whom_it_isolated_it_isolates() {
        let mut waiting = Waiting::default();
        let in_turn =
            [policy("a", true, false), policy("a", true, true), policy("b", true, true), policy("a", true, false)];
        in_turn.iter().for_each(|now| waiting.say(now.clone()));
        assert_eq!(waiting.said(), &in_turn[1..], "the first is one of the second's");
        waiting.say(in_turn[2].clone());
        assert_eq!(waiting.said(), [1, 3, 2].map(|at: usize| in_turn[at].clone()));
        waiting.go();
        assert_eq!((waiting.now(), waiting.said().len()), (None, 3));
        waiting.say(policy("", true, true));
        assert_eq!(waiting.said(), [policy("", true, true)]);
        assert_eq!(waiting.now(), Some(&policy("", true, true)));
    }

    #[test]
    fn what_says_ever_more_takes_no_more_room() {
        let mut waiting = Waiting::default();
        let label = |n: usize| format!("app{n}");
        for n in 0..3 * AT_MOST {
            waiting.say(policy(&label(n), true, false));
            assert!(waiting.said().len() <= AT_MOST && waiting.now() == Some(&policy(&label(n), true, false)));
            for before in 0..=n {
                let labels: Labels = [(label(before).into(), "".into())].into_iter().collect();
                let mut isolating = waiting.said().iter().filter(|policy| policy.ingress.is_some());
                assert!(isolating.any(|policy| policy.subject.matches(&labels)), "{before} of {n}");
            }
        }
    }
}

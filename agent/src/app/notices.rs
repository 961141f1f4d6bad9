//! What is to be said of a policy where people look for it: at its object, by a Kubernetes Event where the source is an apiserver.
//!
//! Invariant: one notice for a policy and a reason while that lasts, also where it comes and goes by the second; whoever writes notices
//! never holds up who says them. The log has each of these states by itself.

use std::collections::{BTreeMap, BTreeSet};

use osmia_maps::catalogue::PolicyName;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::{Duration, Instant},
};

use crate::{
    compile::policy::OverBudget,
    model::Name,
    source::notice::{Notice, Reason},
};

/// What has been over for less than this goes on.
const QUIET: Duration = Duration::from_secs(600);
/// Notices that wait to be written.
const WAITING: usize = 256;

/// What was said.
pub(super) struct Notices {
    /// Since when it is over; `None`: it lasts.
    said: BTreeMap<(Reason, PolicyName), Option<Instant>>,
    to: mpsc::Sender<Notice>,
    /// There was no room for some.
    lost: bool,
}

impl Notices {
    /// And where they come out.
    pub(super) fn new() -> (Self, mpsc::Receiver<Notice>) {
        let (to, from) = mpsc::channel(WAITING);
        (Self { said: BTreeMap::new(), to, lost: false }, from)
    }

    /// A reason holds for a policy, as told in a sentence, or does not.
    pub(super) fn set(&mut self, reason: Reason, policy: &PolicyName, note: Option<String>) {
        let key = (reason, policy.clone());
        match (note, self.said.get_mut(&key)) {
            (None, Some(over)) => drop(over.get_or_insert_with(Instant::now)),
            (None, None) => {}
            (Some(_), Some(over)) if over.is_none_or(|since| since.elapsed() < QUIET) => *over = None,
            (Some(note), _) => {
                self.said.insert(key, None);
                self.say(Notice { reason, policy: policy.clone(), note });
            }
        }
    }

    /// A reason holds for these policies and for no other.
    pub(super) fn set_all(&mut self, reason: Reason, now: BTreeMap<PolicyName, String>) {
        let of_reason = |key: &(Reason, PolicyName)| key.0 == reason && !now.contains_key(&key.1);
        for (_, over) in self.said.iter_mut().filter(|(key, _)| of_reason(key)) {
            over.get_or_insert_with(Instant::now);
        }
        for (policy, note) in now {
            self.set(reason, &policy, Some(note));
        }
    }

    /// Policies of this name are gone: nothing holds for them.
    pub(super) fn gone(&mut self, policy: &Name) {
        self.end(policy.namespace(), policy.name(), |_| true);
    }

    /// This is the policy of its name now: nothing holds for one before it, which may have gone untold.
    pub(super) fn is_there(&mut self, policy: &PolicyName) {
        self.end(&policy.namespace, &policy.name, |uid| uid != policy.uid);
    }

    fn end(&mut self, namespace: &str, name: &str, is_gone: impl Fn(&str) -> bool) {
        // By name in each reason: a start asks for every policy.
        for reason in Reason::ALL {
            let least = PolicyName { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
            let said = self.said.range_mut((reason, least)..);
            let said = said
                .take_while(|((of, policy), _)| *of == reason && policy.namespace == namespace && policy.name == name);
            for (_, over) in said.filter(|((_, policy), _)| is_gone(&policy.uid)) {
                over.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Endpoints that are isolated for want of room, told of their policies.
    pub(super) fn over_budget(&mut self, over: &[OverBudget]) {
        let mut by_policy: BTreeMap<&PolicyName, Vec<&OverBudget>> = BTreeMap::new();
        for one in over {
            for policy in &one.policies {
                by_policy.entry(policy).or_default().push(one);
            }
        }
        let notes = by_policy.into_iter().filter_map(|(policy, over)| {
            let OverBudget { pod, map, rows, limit, .. } = over.first()?;
            // No policy asks for one without a pod.
            let pod = pod.as_ref()?;
            let pods = over.iter().map(|over| over.slot).collect::<BTreeSet<u32>>().len();
            let note = format!(
                "the rules of {pods} pods, {pod} among them, need {rows} rows in {map}, of {limit} for all: they stay isolated"
            );
            Some((policy.clone(), note))
        });
        self.set_all(Reason::OverBudget, notes.collect());
    }

    /// Forgets what has been over for long.
    pub(super) fn forget(&mut self) {
        self.said.retain(|_, over| over.is_none_or(|since| since.elapsed() < QUIET));
    }

    fn say(&mut self, notice: Notice) {
        match self.to.try_send(notice) {
            Ok(()) => self.lost = false,
            Err(TrySendError::Full(notice)) if !self.lost => {
                let policy = notice.policy.to_string();
                tracing::warn!(policy, "too many notices wait: not all policies get an Event");
                self.lost = true;
            }
            // Nobody writes them: the source is a folder.
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str) -> PolicyName {
        PolicyName { namespace: "ns".into(), name: name.into(), uid: "u".into() }
    }

    fn said(from: &mut mpsc::Receiver<Notice>) -> Vec<String> {
        std::iter::from_fn(|| from.try_recv().ok()).map(|notice| notice.note).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn once_while_it_lasts_and_again_only_when_it_was_over_for_long() {
        let (mut notices, mut from) = Notices::new();
        let note = |n: usize| Some(format!("{n} rows"));
        for n in 0..20 {
            notices.set(Reason::OverBudget, &policy("p"), note(n));
            tokio::time::advance(Duration::from_secs(1)).await;
            notices.set(Reason::OverBudget, &policy("p"), None);
        }
        notices.set(Reason::ChangeFailed, &policy("p"), note(30));
        assert_eq!(said(&mut from), ["0 rows", "30 rows"], "one for each reason");
        tokio::time::advance(QUIET).await;
        notices.set(Reason::ChangeFailed, &policy("p"), note(31));
        notices.set(Reason::OverBudget, &policy("p"), note(32));
        assert_eq!(said(&mut from), ["32 rows"], "what lasts is not said again");
        notices.gone(&Name::new("ns", "p"));
        tokio::time::advance(QUIET).await;
        notices.forget();
        assert!(notices.said.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_name_nothing_lasts_but_what_holds_for_the_policy_that_is_there() {
        let (mut notices, _from) = Notices::new();
        let of = |uid: &str, name: &str| PolicyName { uid: uid.into(), ..policy(name) };
        for one in [of("u1", "p"), of("u2", "p"), of("u1", "pp"), of("u1", "o")] {
            for reason in Reason::ALL {
                notices.set(reason, &one, Some(String::new()));
            }
        }
        notices.is_there(&of("u2", "p"));
        let last = |notices: &Notices| -> Vec<String> {
            let last = notices.said.iter().filter(|(_, over)| over.is_none());
            last.filter(|((reason, _), _)| *reason == Reason::ChangeSlow)
                .map(|((_, of), _)| format!("{} {}", of.name, of.uid))
                .collect()
        };
        assert_eq!(last(&notices), ["o u1", "p u2", "pp u1"]);
        notices.gone(&Name::new("ns", "p"));
        assert_eq!(last(&notices), ["o u1", "pp u1"]);
        tokio::time::advance(QUIET).await;
        notices.forget();
        assert_eq!(notices.said.len(), 2 * Reason::ALL.len());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_not_among_them_any_more_is_over() {
        let (mut notices, mut from) = Notices::new();
        let of = |names: &[&str]| names.iter().map(|name| (policy(name), (*name).to_owned())).collect();
        notices.set_all(Reason::ChangeFailed, of(&["a", "b"]));
        notices.set_all(Reason::OverBudget, of(&["a"]));
        notices.set_all(Reason::ChangeFailed, of(&["b"]));
        tokio::time::advance(QUIET).await;
        notices.set_all(Reason::OverBudget, of(&["a"]));
        notices.set_all(Reason::ChangeFailed, of(&["a", "b"]));
        assert_eq!(said(&mut from), ["a", "b", "a", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_who_writes_them() {
        let (mut notices, mut from) = Notices::new();
        let all = |letter: char| (0..2 * WAITING).map(move |n| (policy(&format!("{letter}{n}")), String::new()));
        notices.set_all(Reason::ChangeFailed, all('a').collect());
        assert_eq!(said(&mut from).len(), WAITING);
        drop(from);
        notices.set_all(Reason::ChangeFailed, all('b').collect());
    }
}

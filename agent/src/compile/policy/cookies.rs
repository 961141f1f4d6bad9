//! Cookies: the names of rules and isolations that verdict rows carry.
//!
//! Invariant: a cookie is never given to another; a policy that was written anew has new ones.

use std::{collections::BTreeMap, sync::Arc};

use osmia_maps::catalogue::PolicyName;

use super::{budget::Room, numbers::Numbers};
use crate::model::policy::{Direction, Rule};

/// What a cookie stands for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cookie {
    /// A rule that allows.
    Rule {
        /// The policy.
        policy: PolicyName,
        /// Which list of it.
        direction: Direction,
        /// Index in that list.
        rule: usize,
    },
    /// Isolation by these policies.
    Isolated(Direction, Vec<PolicyName>),
    /// Isolation by these policies, whose rules need more rows than there is room for.
    OverBudget(Direction, Vec<PolicyName>),
    /// The endpoint's Pod has not been told yet, and a policy may select it.
    Provisional(Direction),
    /// The endpoint's rules are being written this moment.
    Changing,
}

impl Cookie {
    /// Of what no rule allows.
    pub(super) fn isolation(direction: Direction, policies: Vec<PolicyName>, room: Room) -> Self {
        match (policies.is_empty(), room) {
            (true, _) => Self::Provisional(direction),
            (false, Room::Whole) => Self::Isolated(direction, policies),
            (false, Room::NoVerdicts | Room::NoRanges) => Self::OverBudget(direction, policies),
        }
    }
}

#[derive(Debug)]
struct State {
    cookie: Arc<Cookie>,
    rules: Arc<[Rule]>,
    users: usize,
}

/// Numbers by the rules they come from.
type ByRules = Vec<(Arc<[Rule]>, u32)>;

#[derive(Debug, Default)]
pub(super) struct Cookies {
    numbers: BTreeMap<Arc<Cookie>, ByRules>,
    states: BTreeMap<u32, State>,
    pub(super) given: Numbers,
}

impl Cookies {
    /// The number of a cookie, as long as the rules it comes from are the same: the one that is in use, else the one it had `before` this
    /// start, else a new one.
    pub(super) fn take(&mut self, cookie: Cookie, rules: &Arc<[Rule]>, before: Option<u32>) -> u32 {
        let same = self.numbers.get(&cookie).and_then(|all| all.iter().find(|(of, _)| of == rules));
        if let Some((_, number)) = same {
            if let Some(state) = self.states.get_mut(number) {
                state.users += 1;
            }
            return *number;
        }
        let number = before.unwrap_or_else(|| self.given.next());
        let cookie = Arc::new(cookie);
        let of = self.numbers.entry(Arc::clone(&cookie)).or_default();
        // Most have no other ever.
        of.reserve_exact(1);
        of.push((Arc::clone(rules), number));
        self.states.insert(number, State { cookie, rules: Arc::clone(rules), users: 1 });
        number
    }

    pub(super) fn release(&mut self, number: u32) {
        let Some(state) = self.states.get_mut(&number) else { return };
        state.users = state.users.saturating_sub(1);
        if state.users > 0 {
            return;
        }
        let Some(state) = self.states.remove(&number) else { return };
        self.given.leave(number);
        if let Some(same) = self.numbers.get_mut(&state.cookie) {
            same.retain(|(_, of)| *of != number);
            if same.is_empty() {
                self.numbers.remove(&state.cookie);
            }
        }
    }

    /// What a number stands for, and the rules it comes from.
    pub(super) fn get(&self, number: u32) -> Option<(&Cookie, &[Rule])> {
        self.states.get(&number).map(|state| (&*state.cookie, &*state.rules))
    }

    /// All numbers with what they stand for.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &Cookie)> {
        self.states.iter().map(|(number, state)| (*number, &*state.cookie))
    }
}

//! The verdict of a rule set on a class.
//!
//! A lookup asks (rule set, class of the peer); where that pair has no row for the traffic, (rule set, class 0), which holds what anyone may
//! do; where that has none either, the set's base row: isolated.

use osmia_maps::layout::{
    self, Asked, VerdictRow,
    policy::{BASE_BITS, CLASS_BITS, PART_LOOSE, PROTO_BITS, V_ALLOW, V_BASE},
};

use super::{
    budget::Room,
    classes::{Classes, Signature},
    ports::{self, Range, Scope, Wanted},
    sets::{Set, SetRule, Sets},
};

/// Which packets a verdict is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum VerdictKey {
    /// Those that no other row of the set speaks of.
    Base(u32),
    /// Those of a rule set with a class, in a scope.
    Pair(u32, u32, Scope),
}

impl VerdictKey {
    /// As the map has it.
    #[must_use]
    pub fn row(&self) -> layout::VerdictKey {
        let pair = |set, class| Asked { set, class, ..Asked::default() };
        let (bits, asked) = match *self {
            Self::Base(set) => (BASE_BITS, pair(set, 0)),
            Self::Pair(set, class, Scope::All) => (CLASS_BITS, pair(set, class)),
            Self::Pair(set, class, Scope::Loose { protocol }) => {
                (PROTO_BITS, Asked { part: PART_LOOSE, proto: protocol, ..pair(set, class) })
            }
            Self::Pair(set, class, Scope::Ports { protocol, port, bits }) => {
                let asked = Asked { proto: protocol, port: port.to_be_bytes(), ..pair(set, class) };
                (PROTO_BITS + u32::from(bits), asked)
            }
        };
        layout::VerdictKey { bits, asked }
    }
}

impl Verdict {
    /// As the map has it, under this key.
    #[must_use]
    pub fn row(&self, key: &VerdictKey) -> VerdictRow {
        let allow = if self.allow { V_ALLOW } else { 0 };
        let base = if matches!(key, VerdictKey::Base(_)) { V_BASE } else { 0 };
        VerdictRow { flags: allow | base, cookie: self.cookie }
    }
}

/// A verdict and the cookie that names its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether the packet passes.
    pub allow: bool,
    /// Names the rule, or the isolation.
    pub cookie: u32,
}

/// The rows of a set for anybody; of one that is over the budget nothing but its base row.
pub(super) fn base(sets: &Sets, number: u32, each: &mut impl FnMut(VerdictKey, Verdict)) {
    let Some(set) = sets.get(number) else { return };
    each(VerdictKey::Base(number), Verdict { allow: false, cookie: set.isolation });
    if set.room == Room::Whole {
        pair(set, number, 0, &Signature::default(), each);
    }
}

/// The rows of a set for a class that one of its atoms speaks of.
pub(super) fn of(sets: &Sets, classes: &Classes, number: u32, class: u32, each: &mut impl FnMut(VerdictKey, Verdict)) {
    if let Some(set) = sets.get(number).filter(|set| set.room == Room::Whole) {
        pair(set, number, class, &classes.signature(class), each);
    }
}

/// How many rows a set would have for a class, the budget aside.
pub(super) fn count(set: &Set, classes: &Classes, class: u32) -> usize {
    let mut count = 0;
    pair(set, 0, class, &classes.signature(class), &mut |_, _| count += 1);
    count
}

fn pair(set: &Set, number: u32, class: u32, signature: &Signature, each: &mut impl FnMut(VerdictKey, Verdict)) {
    let mut decisions: Vec<(Wanted, Verdict)> = Vec::new();
    for rule in set.speaking(signature) {
        let verdict = Verdict { allow: true, cookie: rule.cookie };
        decisions.extend(traffic(rule, signature).into_iter().map(|wanted| (wanted, verdict)));
    }
    // All of them allow: the broad ones first make the fewest rows.
    decisions.sort_by_key(|(wanted, _)| std::cmp::Reverse(wanted.map_or(u32::MAX, |r| u32::from(r.last - r.first))));
    let all = decisions.iter().any(|(wanted, verdict)| wanted.is_none() && verdict.allow);
    let mut loose = None;
    for (scope, verdict) in ports::rows(&decisions) {
        // Rows of a protocol come together.
        if let Scope::Ports { protocol, .. } = scope
            && verdict.allow
            && !all
            && loose != Some(protocol)
        {
            loose = Some(protocol);
            each(VerdictKey::Pair(number, class, Scope::Loose { protocol }), verdict);
        }
        each(VerdictKey::Pair(number, class, scope), verdict);
    }
}

/// The traffic that a rule allows with a class.
fn traffic(rule: &SetRule, signature: &Signature) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    if rule.peers.as_ref().is_none_or(|peers| signature.iter().any(|(atom, _)| peers.contains(atom))) {
        match &rule.ranges {
            None => all.push(None),
            Some(ranges) => all.extend(ranges.iter().copied().map(Some)),
        }
    }
    for (atom, protocol) in &rule.named {
        let values = signature.iter().filter(|(a, _)| a == atom);
        all.extend(values.map(|(_, port)| Some(Range { protocol: *protocol, first: *port, last: *port })));
    }
    all
}

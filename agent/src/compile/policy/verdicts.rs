//! The verdict of a rule set on a class.
//!
//! Each pair of both that says anything has a *head*: the verdict on what no narrower row of it speaks of, and which lengths those have.
//! Rules for anybody are in the rows of each class that others speak of, so a lookup asks one pair alone: that of the peer's class, or, where
//! that has no head, that of class 0, which holds what anyone may do.

use osmia_maps::layout::{
    Asked, VerdictKey, VerdictRow,
    policy::{LOOSE, PROTO_BITS, V_ALLOW, narrower},
};

use super::{
    budget::Room,
    classes::{Classes, Signature},
    ports::{self, Range, Scope, Wanted},
    sets::{Set, SetRule, Sets},
};

/// A verdict and the cookie that names its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Verdict {
    allow: bool,
    /// Names the rule, or the isolation.
    cookie: u32,
}

impl Verdict {
    fn flags(self) -> u32 {
        if self.allow { V_ALLOW } else { 0 }
    }
}

/// The head of a set that denies all: what isolates is all it says.
pub(super) fn closed(number: u32, isolation: u32) -> (VerdictKey, VerdictRow) {
    (VerdictKey::head(number, 0), VerdictRow { cookie: isolation, ..VerdictRow::default() })
}

/// The rows of a set for anybody; of one that is over the budget nothing but what isolates.
pub(super) fn base(sets: &Sets, number: u32, each: &mut impl FnMut(VerdictKey, VerdictRow)) {
    let Some(set) = sets.get(number) else { return };
    if set.room == Room::Whole {
        pair(set, number, 0, &Signature::default(), each);
    } else {
        let (key, row) = closed(number, set.isolation);
        each(key, row);
    }
}

/// The rows of a set for a class that one of its atoms speaks of.
pub(super) fn of(
    sets: &Sets,
    classes: &Classes,
    number: u32,
    class: u32,
    each: &mut impl FnMut(VerdictKey, VerdictRow),
) {
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

fn pair(set: &Set, number: u32, class: u32, signature: &Signature, each: &mut impl FnMut(VerdictKey, VerdictRow)) {
    let mut decisions: Vec<(Wanted, Verdict)> = Vec::new();
    for rule in set.speaking(signature) {
        let verdict = Verdict { allow: true, cookie: rule.cookie };
        decisions.extend(traffic(rule, signature).into_iter().map(|wanted| (wanted, verdict)));
    }
    // All of them allow: the broad ones first make the fewest rows.
    decisions.sort_by_key(|(wanted, _)| std::cmp::Reverse(wanted.map_or(u32::MAX, |r| u32::from(r.last - r.first))));
    // What nobody says anything of, the head of anybody says.
    if decisions.is_empty() && class != 0 {
        return;
    }
    let all = decisions.iter().any(|(wanted, verdict)| wanted.is_none() && verdict.allow);
    let (key, mut head) = closed(number, set.isolation);
    for (scope, verdict) in ports::rows(&decisions) {
        match scope {
            Scope::All => (head.flags, head.cookie) = (head.flags | verdict.flags(), verdict.cookie),
            Scope::Ports { protocol, port, bits } => {
                let bits = PROTO_BITS + u32::from(bits);
                head.flags |= narrower(bits);
                if verdict.allow && !all {
                    loose(&mut head, protocol, verdict.cookie);
                }
                let asked = Asked { set: number, class, part: 0, proto: protocol, port: port.to_be_bytes() };
                let row = VerdictRow { flags: verdict.flags(), cookie: verdict.cookie, ..VerdictRow::default() };
                each(VerdictKey::ports(&asked, bits), row);
            }
        }
    }
    each(VerdictKey { asked: Asked { class, ..key.asked }, ..key }, head);
}

/// Fragments without a first one are allowed by the rule of the lowest port of their protocol that is allowed.
fn loose(head: &mut VerdictRow, protocol: u8, cookie: u32) {
    let of = LOOSE.iter().zip(&mut head.loose).find(|(number, _)| **number == protocol);
    if let Some((_, loose)) = of.filter(|(_, loose)| **loose == 0) {
        *loose = cookie;
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

//! What the catalogue is told: the names of numbers before their rows are written, and which numbers no row has any more.

use osmia_maps::catalogue::{self, Last, Line, Ports, Reason};

use super::{
    Policies,
    cookies::Cookie,
    numbers,
    sets::{Set, Sets},
    words,
};
use crate::model::policy::Direction;

impl Policies {
    /// The names of numbers that were given since the last call: for the catalogue before the rows of that update are written.
    pub fn take_names(&mut self) -> impl Iterator<Item = Line> {
        let (atoms, classes) = (self.atoms.given.take_came(), self.classes.given.take_came());
        let (sets, cookies) = (self.sets.given.take_came(), self.sets.cookies.given.take_came());
        let Self { atoms: of_atoms, classes: of_classes, sets: of_sets, digests, .. } = self;
        let (of_atoms, of_classes, of_sets) = (&*of_atoms, &*of_classes, &*of_sets);
        let atom = |number| {
            let atom = of_atoms.get(number)?;
            // An atom has nothing that JSON could not say.
            let definition = serde_json::to_value(atom).unwrap_or_default();
            Some(Line::Atom { number, text: words::atom(atom), definition })
        };
        let cookie = |cookie| Some(Line::Cookie { cookie, reason: reason(of_sets, cookie)? });
        let class = |number| Line::Class { number, signature: of_classes.signature(number).to_vec() };
        let set = move |number| {
            let set = of_sets.get(number)?;
            Some(Line::Set {
                number,
                direction: direction(set.key.direction),
                policies: set.key.policies.iter().map(|(policy, _)| policy.clone()).collect(),
                isolation: set.isolation,
                rules: set.lines(),
                definition: serde_json::to_value(digests.definition(&set.key, set.room)).unwrap_or_default(),
            })
        };
        let atoms = atoms.into_iter().filter_map(atom);
        let cookies = cookies.into_iter().filter_map(cookie);
        atoms.chain(cookies).chain(classes.into_iter().map(class)).chain(sets.into_iter().filter_map(set))
    }

    /// What was forgotten since the last call, to be taken right after the update that forgot it: for the catalogue after the old rows of
    /// that update are gone.
    pub fn take_gone(&mut self) -> Option<Line> {
        let atoms = self.atoms.given.take_went();
        let classes = self.classes.given.take_went();
        let sets = self.sets.given.take_went();
        let cookies = self.sets.cookies.given.take_went();
        let any = [&atoms, &classes, &sets, &cookies].into_iter().any(|numbers| !numbers.is_empty());
        any.then_some(Line::Gone { atoms, classes, sets, cookies })
    }

    /// The highest numbers that were given.
    #[must_use]
    pub fn last(&self) -> Last {
        Last {
            atom: self.atoms.given.last(),
            class: self.classes.given.last(),
            set: self.sets.given.last(),
            cookie: self.sets.cookies.given.last(),
        }
    }

    /// Whether too few numbers are left for another change. None is given twice, so that only maps that begin anew have more.
    #[must_use]
    pub fn has_used_up_numbers(&self) -> bool {
        numbers::used_up(self.last())
    }
}

impl Set {
    /// Its rules as the catalogue has them.
    pub(super) fn lines(&self) -> Vec<catalogue::SetRule> {
        let rules = self.rules.iter().map(|rule| {
            let ports = rule.ranges.as_ref().map(|ranges| {
                let ports =
                    |r: &super::ports::Range| Ports { protocol: r.protocol as u8, first: r.first, last: r.last };
                ranges.iter().map(ports).collect()
            });
            catalogue::SetRule {
                cookie: rule.cookie,
                peers: rule.peers.as_ref().map(|peers| peers.iter().copied().collect()),
                ports,
                named: rule.named.iter().map(|(atom, protocol)| (*atom, *protocol as u8)).collect(),
            }
        });
        rules.collect()
    }
}

fn direction(direction: Direction) -> catalogue::Direction {
    match direction {
        Direction::Ingress => catalogue::Direction::Ingress,
        Direction::Egress => catalogue::Direction::Egress,
    }
}

fn reason(sets: &Sets, number: u32) -> Option<Reason> {
    let (cookie, rules) = sets.cookies.get(number)?;
    Some(match cookie {
        Cookie::Rule { policy, direction: of, rule } => Reason::Rule {
            policy: policy.clone(),
            direction: direction(*of),
            rule: *rule,
            text: rules.get(*rule).map(|rule| words::rule(rule, *of, &policy.namespace)).unwrap_or_default(),
        },
        Cookie::Isolated(of, policies) => Reason::Isolated { direction: direction(*of), policies: policies.clone() },
        Cookie::OverBudget(of, policies) => {
            Reason::OverBudget { direction: direction(*of), policies: policies.clone() }
        }
        Cookie::Provisional(of) => Reason::Provisional { direction: direction(*of) },
        Cookie::Changing => Reason::Changing,
    })
}

//! Ports: many overlapping ranges, the first of which decides, into prefixes that do not contradict each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::policy::Protocol;

/// Ports of a protocol, first to last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Range {
    pub(super) protocol: Protocol,
    pub(super) first: u16,
    pub(super) last: u16,
}

/// The traffic a row speaks of; the narrowest row of a pair decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Scope {
    /// All of it.
    All,
    /// That of a protocol whose port begins with these bits.
    Ports {
        /// IANA protocol number.
        protocol: u8,
        /// The bits, the others zero.
        port: u16,
        /// How many of the 16.
        bits: u8,
    },
}

/// What traffic a decision is about; `None`: all of it.
pub(super) type Wanted = Option<Range>;

/// Rows for decisions of which the first that speaks of a packet counts.
pub(super) fn rows<T: Copy + PartialEq>(decisions: &[(Wanted, T)]) -> Vec<(Scope, T)> {
    let base = decisions.iter().find(|(wanted, _)| wanted.is_none()).map(|(_, decision)| *decision);
    let mut rows: Vec<(Scope, T)> = base.map(|decision| (Scope::All, decision)).into_iter().collect();
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        if !decisions.iter().any(|(wanted, _)| wanted.is_some_and(|range| range.protocol == protocol)) {
            continue;
        }
        for (first, last, decision) in stretches(decisions, protocol) {
            if Some(decision) != base {
                let scopes = prefixes(first, last);
                rows.extend(
                    scopes.map(|(port, bits)| (Scope::Ports { protocol: protocol as u8, port, bits }, decision)),
                );
            }
        }
    }
    rows
}

/// The ports of a protocol cut where the decision changes.
fn stretches<T: Copy + PartialEq>(decisions: &[(Wanted, T)], protocol: Protocol) -> Vec<(u16, u16, T)> {
    let mut edges: BTreeMap<u32, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (order, (wanted, _)) in decisions.iter().enumerate() {
        let (first, last) = match wanted {
            None => (0, u16::MAX),
            Some(range) if range.protocol == protocol => (range.first, range.last),
            Some(_) => continue,
        };
        edges.entry(u32::from(first)).or_default().0.push(order);
        edges.entry(u32::from(last) + 1).or_default().1.push(order);
    }
    let mut stretches: Vec<(u16, u16, T)> = Vec::new();
    let mut speaking = BTreeSet::new();
    let ends = edges.keys().copied().skip(1).collect::<Vec<_>>();
    for ((start, (begin, end)), next) in edges.into_iter().zip(ends) {
        for order in end {
            speaking.remove(&order);
        }
        speaking.extend(begin);
        let decision = speaking.first().and_then(|order: &usize| decisions.get(*order)).map(|(_, d)| *d);
        let (Some(decision), Ok(first), Ok(last)) = (decision, u16::try_from(start), u16::try_from(next - 1)) else {
            continue;
        };
        match stretches.last_mut() {
            Some((_, before, same)) if *same == decision && u32::from(*before) + 1 == start => *before = last,
            _ => stretches.push((first, last, decision)),
        }
    }
    stretches
}

/// The fewest prefixes that make up first to last.
fn prefixes(first: u16, last: u16) -> impl Iterator<Item = (u16, u8)> {
    let (mut at, end) = (u32::from(first), u32::from(last) + 1);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let aligned = if at == 0 { 16 } else { at.trailing_zeros() };
        let room = (end - at).ilog2();
        let low = aligned.min(room);
        let port = u16::try_from(at).ok()?;
        at += 1 << low;
        Some((port, 16 - low as u8))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_fewest_prefixes() {
        let of = |first, last| prefixes(first, last).collect::<Vec<_>>();
        assert_eq!(of(0, 65535), [(0, 0)]);
        assert_eq!(of(80, 80), [(80, 16)]);
        assert_eq!(of(65535, 65535), [(65535, 16)]);
        assert_eq!(of(1, 6), [(1, 16), (2, 15), (4, 15), (6, 16)]);
        assert_eq!(of(1, 65535).len(), 16);
    }

    #[test]
    fn rows_say_what_the_first_decision_says() {
        let tcp = |first, last| Some(Range { protocol: Protocol::Tcp, first, last });
        let udp = |first, last| Some(Range { protocol: Protocol::Udp, first, last });
        let cases: [&[(Wanted, u8)]; 5] = [
            &[(tcp(80, 90), 1), (tcp(85, 100), 2), (udp(0, 65535), 3)],
            &[(tcp(85, 100), 2), (tcp(80, 90), 1), (None, 3)],
            &[(None, 1), (tcp(80, 80), 2)],
            &[(tcp(1, 65535), 1), (tcp(0, 0), 2), (tcp(65535, 65535), 3)],
            &[],
        ];
        for decisions in cases {
            let rows = rows(decisions);
            for protocol in [6, 17, 132, 1] {
                for port in (0..=200).chain(65_500..=65_535) {
                    let speaks = |wanted: &Wanted| {
                        wanted.is_none_or(|r| r.protocol as u8 == protocol && (r.first..=r.last).contains(&port))
                    };
                    let wanted = decisions.iter().find(|(w, _)| speaks(w)).map(|(_, decision)| *decision);
                    let found = rows.iter().filter_map(|(scope, decision)| match scope {
                        Scope::All => Some((0, *decision)),
                        Scope::Ports { protocol: p, port: front, bits } => {
                            let same = u32::from(port ^ front) >> (16 - bits) == 0;
                            (*p == protocol && same).then_some((1 + *bits, *decision))
                        }
                    });
                    assert_eq!(
                        found.max_by_key(|(bits, _)| *bits).map(|(_, d)| d),
                        wanted,
                        "{decisions:?} {protocol} {port}"
                    );
                }
            }
        }
    }
}

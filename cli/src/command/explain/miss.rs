//! The nearest miss: of a denied packet, the rule that fails on the fewest of peer, protocol and port.

use osmia_maps::catalogue::{Ports, SetRule};

/// What is asked of rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// What the peer's class says: atoms, each with 0 or the number of its named port.
    pub(super) signature: &'a [(u32, u16)],
    /// IP protocol number.
    pub(super) proto: u8,
    /// Destination port; `None` for protocols without.
    pub(super) port: Option<u16>,
}

/// On what a rule fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Miss {
    pub(super) peer: bool,
    pub(super) protocol: bool,
    pub(super) port: bool,
}

impl Miss {
    fn count(self) -> usize {
        [self.peer, self.protocol, self.port].into_iter().filter(|fails| *fails).count()
    }

    /// Whether the rule allows.
    pub(super) fn is_hit(self) -> bool {
        self.count() == 0
    }

    /// What fails, by name.
    pub(super) fn names(self) -> Vec<&'static str> {
        let all = [(self.peer, "peer"), (self.protocol, "protocol"), (self.port, "port")];
        all.into_iter().filter_map(|(fails, name)| fails.then_some(name)).collect()
    }
}

/// On what a rule fails: where it says several things, on the one that is nearest.
pub(super) fn of(rule: &SetRule, wanted: &Wanted<'_>) -> Miss {
    let speaks = |atom: &u32| wanted.signature.iter().any(|(of, _)| of == atom);
    let peer = rule.peers.as_ref().is_some_and(|atoms| !atoms.iter().any(speaks));
    let by_number = match &rule.ports {
        None => Some(Miss { peer, ..Miss::default() }),
        Some(ports) => nearest(ports.iter().map(|ports| Miss { peer, ..ports_miss(ports, wanted) })),
    };
    let by_name = nearest(rule.named.iter().map(|(atom, proto)| {
        let values = wanted.signature.iter().filter(|(of, _)| of == atom);
        let ports = values.map(|(_, port)| ports_miss(&Ports { protocol: *proto, first: *port, last: *port }, wanted));
        nearest(ports).unwrap_or(Miss { peer: true, protocol: *proto != wanted.proto, port: false })
    }));
    // A rule of ports that nobody has a number for.
    nearest([by_number, by_name].into_iter().flatten()).unwrap_or(Miss { peer, protocol: false, port: true })
}

fn ports_miss(ports: &Ports, wanted: &Wanted<'_>) -> Miss {
    let port = wanted.port.is_some_and(|port| !(ports.first..=ports.last).contains(&port));
    Miss { peer: false, protocol: ports.protocol != wanted.proto, port }
}

fn nearest(misses: impl Iterator<Item = Miss>) -> Option<Miss> {
    misses.min_by_key(|miss| miss.count())
}

/// Of a set's rules the one that fails on the fewest, of several the first by `name`.
pub(super) fn nearest_rule<'a, N: Ord>(
    rules: &'a [SetRule],
    wanted: &Wanted<'_>,
    name: impl Fn(&'a SetRule) -> N,
) -> Option<(&'a SetRule, Miss)> {
    let misses = rules.iter().map(|rule| (rule, of(rule, wanted)));
    misses.min_by_key(|(rule, miss)| (miss.count(), name(rule)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(cookie: u32, peers: Option<&[u32]>, ports: Option<&[(u8, u16, u16)]>, named: &[(u32, u8)]) -> SetRule {
        let ports = ports.map(|ports| {
            ports
                .iter()
                .map(|(protocol, first, last)| Ports { protocol: *protocol, first: *first, last: *last })
                .collect()
        });
        SetRule { cookie, peers: peers.map(<[u32]>::to_vec), ports, named: named.to_vec() }
    }

    /// A peer of atom 1, whose pods call port 8080 by the name of atom 2; tcp 80.
    const WANTED: Wanted<'_> = Wanted { signature: &[(1, 0), (2, 8080)], proto: 6, port: Some(80) };

    fn names(rule: SetRule) -> Vec<&'static str> {
        of(&rule, &WANTED).names()
    }

    #[test]
    fn a_rule_fails_on_what_it_does_not_say() {
        assert_eq!(names(rule(1, None, None, &[])), [""; 0]);
        assert_eq!(names(rule(1, Some(&[9, 1]), Some(&[(6, 79, 81)]), &[])), [""; 0]);
        assert_eq!(names(rule(1, Some(&[9]), None, &[])), ["peer"]);
        assert_eq!(names(rule(1, Some(&[]), None, &[])), ["peer"]);
        assert_eq!(names(rule(1, Some(&[1]), Some(&[(6, 81, 90)]), &[])), ["port"]);
        assert_eq!(names(rule(1, None, Some(&[(17, 80, 80)]), &[])), ["protocol"]);
        assert_eq!(names(rule(1, None, Some(&[(17, 53, 53)]), &[])), ["protocol", "port"]);
        assert_eq!(names(rule(1, Some(&[9]), Some(&[(17, 53, 53)]), &[])), ["peer", "protocol", "port"]);
        // The nearest of its ports, not all of them together.
        assert_eq!(names(rule(1, None, Some(&[(17, 53, 53), (6, 443, 443)]), &[])), ["port"]);
    }

    #[test]
    fn a_named_port_is_what_the_peers_pods_call_so() {
        assert_eq!(names(rule(1, None, Some(&[]), &[(2, 6)])), ["port"]);
        assert_eq!(names(rule(1, None, Some(&[]), &[(3, 6)])), ["peer"]);
        assert_eq!(names(rule(1, None, Some(&[]), &[])), ["port"], "a name that the pod does not have");
        let wanted = Wanted { port: Some(8080), ..WANTED };
        assert!(of(&rule(1, None, Some(&[]), &[(2, 6)]), &wanted).is_hit());
    }

    #[test]
    fn what_has_no_ports_fails_on_none() {
        let icmp = Wanted { proto: 1, port: None, ..WANTED };
        assert_eq!(of(&rule(1, Some(&[1]), Some(&[(6, 80, 80)]), &[]), &icmp).names(), ["protocol"]);
        assert!(of(&rule(1, Some(&[1]), None, &[]), &icmp).is_hit());
    }

    #[test]
    fn of_equal_rules_the_first_by_name_is_the_nearest() {
        let far = rule(1, Some(&[9]), Some(&[(17, 80, 80)]), &[]);
        let (b, a) = (rule(2, Some(&[9]), None, &[]), rule(3, Some(&[1]), Some(&[(6, 1, 1)]), &[]));
        let rules = [far, b, a];
        let name = |rule: &SetRule| ["", "z", "b", "a"][rule.cookie as usize];
        let (rule, miss) = nearest_rule(&rules, &WANTED, name).unwrap();
        assert_eq!((rule.cookie, miss.names()), (3, vec!["port"]));
    }
}

//! The "ports" of ICMP queries and their answers (RFC 792: echo, timestamp, information; RFC 4443: echo).
//!
//! Who asks has the identifier for its port, and who answers the number after it. So an answer's ports are its query's turned round, as those
//! of any flow, and no query has the ports of an answer, whatever its identifier: who is asked gets no leave to ask.

use super::ICMP;

/// The ports of a message of this type; `None`: it has no identifier.
#[inline(always)]
#[must_use]
pub const fn ports(proto: u8, icmp_type: u8, identifier: [u8; 2]) -> Option<([u8; 2], [u8; 2])> {
    let asks = match (proto, icmp_type) {
        (ICMP, 8 | 13 | 15) => true,
        (ICMP, 0 | 14 | 16) => false,
        (ICMP, _) => return None,
        (_, 128) => true,
        (_, 129) => false,
        _ => return None,
    };
    Some(if asks { (identifier, after(identifier)) } else { (after(identifier), identifier) })
}

/// The identifier that such ports stand for.
#[inline(always)]
#[must_use]
pub const fn identifier(sport: [u8; 2], dport: [u8; 2]) -> [u8; 2] {
    if is_asked(sport, dport) { sport } else { dport }
}

/// Whether such ports are a query's.
#[inline(always)]
#[must_use]
pub const fn is_asked(sport: [u8; 2], dport: [u8; 2]) -> bool {
    u16::from_be_bytes(after(sport)) == u16::from_be_bytes(dport)
}

/// The port of who answers.
#[inline(always)]
#[must_use]
pub const fn after(identifier: [u8; 2]) -> [u8; 2] {
    u16::from_be_bytes(identifier).wrapping_add(1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::super::ICMPV6;
    use super::*;

    #[test]
    fn no_query_has_the_ports_of_an_answer() {
        for (proto, asks, answers) in [(ICMP, 8, 0), (ICMP, 13, 14), (ICMP, 15, 16), (ICMPV6, 128, 129)] {
            let of = |kind: u8, id: u16| ports(proto, kind, id.to_be_bytes()).unwrap();
            let answered: std::collections::BTreeSet<_> = (0..=u16::MAX).map(|id| of(answers, id)).collect();
            for id in 0..=u16::MAX {
                let (sport, dport) = of(asks, id);
                assert_eq!(of(answers, id), (dport, sport));
                assert_eq!([identifier(sport, dport), identifier(dport, sport)], [id.to_be_bytes(); 2]);
                assert!(!answered.contains(&(sport, dport)) && (sport, dport) != ([0; 2], [0; 2]));
            }
        }
        assert_eq!((ports(ICMP, 3, [1, 2]), ports(ICMPV6, 8, [1, 2])), (None, None));
    }
}

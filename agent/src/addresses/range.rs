//! One range: which of its addresses may be given, and the next one to try.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;

/// A range: first each address once in order, then those that came back, longest unused first. Never a search.
#[derive(Clone, Debug)]
pub(super) struct Range {
    cidr: IpNet,
    /// First and last address that may be given, as offsets.
    first: u128,
    last: u128,
    /// The next one never given.
    next: u128,
    /// Those below `next` that are free again.
    back: VecDeque<IpAddr>,
}

impl Range {
    pub(super) fn new(cidr: IpNet) -> Self {
        let cidr = cidr.trunc();
        let bits = u32::from(cidr.max_prefix_len() - cidr.prefix_len());
        let size = 1_u128.checked_shl(bits).unwrap_or(u128::MAX);
        // The network's own address and the broadcast address (IPv4), the subnet routers' anycast address (IPv6), and `.1`, which
        // people take for a gateway; a range too small to spare them gives all.
        let (first, last) = match (cidr, bits) {
            (_, 0 | 1) => (0, size - 1),
            (IpNet::V4(_), 2) => (1, size - 2),
            (IpNet::V4(_), _) => (2, size - 2),
            (IpNet::V6(_), 2) => (1, size - 1),
            (IpNet::V6(_), _) => (2, size - 1),
        };
        Self { cidr, first, last, next: first, back: VecDeque::new() }
    }

    pub(super) fn cidr(&self) -> IpNet {
        self.cidr
    }

    pub(super) fn is_v4(&self) -> bool {
        self.cidr.addr().is_ipv4()
    }

    pub(super) fn capacity(&self) -> u128 {
        self.last - self.first + 1
    }

    /// Takes the next free address. `is_taken`: in use or resting, whoever gave it.
    pub(super) fn take(&mut self, is_taken: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        while self.next <= self.last {
            let ip = self.at(self.next);
            self.next += 1;
            if !is_taken(ip) {
                return Some(ip);
            }
        }
        std::iter::from_fn(|| self.back.pop_front()).find(|ip| !is_taken(*ip))
    }

    /// An address is free again. One that the cursor has not passed yet will be found there.
    pub(super) fn put_back(&mut self, ip: IpAddr) {
        if self.offset(ip).is_some_and(|offset| (self.first..self.next).contains(&offset)) {
            self.back.push_back(ip);
        }
    }

    fn at(&self, offset: u128) -> IpAddr {
        match self.cidr.network() {
            IpAddr::V4(base) => Ipv4Addr::from(base.to_bits().wrapping_add(offset as u32)).into(),
            IpAddr::V6(base) => Ipv6Addr::from(base.to_bits().wrapping_add(offset)).into(),
        }
    }

    fn offset(&self, ip: IpAddr) -> Option<u128> {
        if !self.cidr.contains(&ip) {
            return None;
        }
        match (self.cidr.network(), ip) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => Some(u128::from(ip.to_bits() - base.to_bits())),
            (IpAddr::V6(base), IpAddr::V6(ip)) => Some(ip.to_bits() - base.to_bits()),
            _ => None,
        }
    }
}

//! Addresses of this node's pods: allocation inside the node's own pod ranges, with a rest after release.
//!
//! Invariant: an address is given to one owner at a time, also when the ranges change or the owner's range is gone; a released address is
//! not given again before its rest is over, so that late packets and old flows of other nodes meet nobody. No I/O: what is in use is
//! known from the journal.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use ipnet::IpNet;

mod range;

use range::Range;

/// Why there is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoAddress {
    /// Nothing to allocate from.
    #[error("node {0:?} has no podCIDR yet: its Node object needs spec.podCIDRs")]
    NoRange(String),
    /// All addresses are in use or rest.
    #[error("no free address in {}: {} in use, {} resting{}", .ranges.join(", "), .used, .resting, first_free(*.next))]
    Exhausted {
        /// The ranges of the family that ran out.
        ranges: Vec<String>,
        /// Addresses in use in them.
        used: usize,
        /// Addresses that rest.
        resting: usize,
        /// When the first of those is free.
        next: Option<Duration>,
    },
}

fn first_free(next: Option<Duration>) -> String {
    next.map(|after| format!(", the first of them free in {} s", after.as_secs() + 1)).unwrap_or_default()
}

/// The allocator. Times are of one clock, the caller's.
#[derive(Debug, Default)]
pub struct Addresses {
    ranges: Vec<Range>,
    taken: HashMap<IpAddr, State>,
    /// Resting addresses in the order in which their rest ends.
    resting: VecDeque<(Duration, IpAddr)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Used,
    /// Until then.
    Resting(Duration),
}

impl Addresses {
    /// The ranges to allocate from, in order of preference. Addresses in use stay in use, wherever they are from.
    pub fn set_ranges(&mut self, cidrs: &[IpNet]) {
        if self.ranges.iter().map(Range::cidr).eq(cidrs.iter().copied()) {
            return;
        }
        let mut old = std::mem::take(&mut self.ranges);
        self.ranges = cidrs
            .iter()
            .map(|cidr| {
                // A range that stays goes on where it was.
                let kept = old.iter().position(|range| range.cidr() == *cidr).map(|i| old.swap_remove(i));
                kept.unwrap_or_else(|| Range::new(*cidr))
            })
            .collect();
    }

    /// An address of each family there is a range for; none at all if one family has none left.
    ///
    /// # Errors
    /// No range, or a family without a free address.
    pub fn allocate(&mut self, node: &str, ipv6: bool, now: Duration) -> Result<Vec<IpAddr>, NoAddress> {
        self.end_rests(now);
        let mut got = Vec::with_capacity(2);
        for v4 in [true, false] {
            if !v4 && !ipv6 {
                continue;
            }
            let mut family = self.ranges.iter_mut().filter(|range| range.is_v4() == v4).peekable();
            if family.peek().is_none() {
                continue;
            }
            match family.find_map(|range| range.take(|ip| self.taken.contains_key(&ip))) {
                Some(ip) => {
                    self.taken.insert(ip, State::Used);
                    got.push(ip);
                }
                None => {
                    for ip in got {
                        self.untake(ip);
                    }
                    return Err(self.exhausted(v4, now));
                }
            }
        }
        if got.is_empty() { Err(NoAddress::NoRange(node.to_owned())) } else { Ok(got) }
    }

    /// An address that is in use already: from the journal or a pinned row. `false` if it had an owner.
    pub fn claim(&mut self, ip: IpAddr) -> bool {
        match self.taken.insert(ip, State::Used) {
            Some(State::Used) => false,
            Some(State::Resting(_)) => {
                self.resting.retain(|(_, resting)| *resting != ip);
                true
            }
            None => true,
        }
    }

    /// An address is free again at `until`.
    pub fn release(&mut self, ip: IpAddr, until: Duration) {
        if self.taken.get(&ip) != Some(&State::Used) {
            return;
        }
        self.taken.insert(ip, State::Resting(until));
        let at = self.resting.partition_point(|(end, _)| *end <= until);
        self.resting.insert(at, (until, ip));
    }

    /// An address that nobody ever used: free at once.
    pub fn give_back(&mut self, ip: IpAddr) {
        if self.taken.get(&ip) == Some(&State::Used) {
            self.untake(ip);
        }
    }

    /// (addresses in use, addresses resting, addresses that can be given) of each range; the last is cut at 2^64.
    pub fn usage(&mut self, now: Duration) -> Vec<(IpNet, usize, usize, u64)> {
        self.end_rests(now);
        self.ranges
            .iter()
            .map(|range| {
                let (used, resting) = self.counts(|ip| range.cidr().contains(&ip));
                (range.cidr(), used, resting, u64::try_from(range.capacity()).unwrap_or(u64::MAX))
            })
            .collect()
    }

    fn counts(&self, within: impl Fn(IpAddr) -> bool) -> (usize, usize) {
        let mut counts = (0, 0);
        for (ip, state) in &self.taken {
            match state {
                _ if !within(*ip) => {}
                State::Used => counts.0 += 1,
                State::Resting(_) => counts.1 += 1,
            }
        }
        counts
    }

    fn exhausted(&self, v4: bool, now: Duration) -> NoAddress {
        let ranges: Vec<IpNet> =
            self.ranges.iter().map(Range::cidr).filter(|cidr| cidr.addr().is_ipv4() == v4).collect();
        let within = |ip: IpAddr| ranges.iter().any(|cidr| cidr.contains(&ip));
        let (used, resting) = self.counts(within);
        let next = self.resting.iter().find(|(_, ip)| within(*ip)).map(|(end, _)| end.saturating_sub(now));
        NoAddress::Exhausted { ranges: ranges.iter().map(ToString::to_string).collect(), used, resting, next }
    }

    fn end_rests(&mut self, now: Duration) {
        while let Some((_, ip)) = self.resting.front().copied().filter(|(end, _)| *end <= now) {
            self.resting.pop_front();
            self.untake(ip);
        }
    }

    fn untake(&mut self, ip: IpAddr) {
        if self.taken.remove(&ip).is_some() {
            for range in &mut self.ranges {
                range.put_back(ip);
            }
        }
    }
}

#[cfg(test)]
mod tests;

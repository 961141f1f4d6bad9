//! Ranges of addresses: which atoms speak of each.
//!
//! Invariant: every range and every exception of an atom in use is a prefix here, and its signature has all ranges around it folded in, so
//! that the longest prefix of an address says everything that ranges say of it. [`ALL_V4`] is always one: in the map IPv4 lies inside IPv6
//! (`::ffff:0:0/96`), and what is said of `::/0` is said of no IPv4 address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Bound,
};

use ipnet::{IpNet, Ipv4Net};

use super::{
    atoms::{Numbered, Who},
    classes::Signature,
};

/// All IPv4 addresses.
pub(super) const ALL_V4: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));

#[derive(Debug, Default)]
struct At {
    /// Atoms whose range this is.
    ranges: BTreeSet<u32>,
    /// Atoms that leave this out.
    exceptions: BTreeSet<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    prefixes: BTreeMap<IpNet, At>,
    /// Prefixes in use by length; IPv4's in the first row.
    lengths: [BTreeMap<u8, usize>; 2],
}

impl Blocks {
    /// A new atom; prefixes that mean something else now are dirty.
    pub(super) fn add(&mut self, numbered: &Numbered, dirty: &mut BTreeSet<IpNet>) {
        let Who::Block(cidr, except) = &numbered.atom.who else { return };
        self.at(*cidr).ranges.insert(numbered.number);
        for part in except {
            self.at(*part).exceptions.insert(numbered.number);
        }
        dirty.extend(self.inside(*cidr));
    }

    /// An atom is gone; prefixes that mean something else now are dirty.
    pub(super) fn remove(&mut self, numbered: &Numbered, dirty: &mut BTreeSet<IpNet>) {
        let Who::Block(cidr, except) = &numbered.atom.who else { return };
        dirty.extend(self.inside(*cidr));
        for prefix in except.iter().chain([cidr]) {
            let Some(at) = self.prefixes.get_mut(prefix) else { continue };
            at.ranges.remove(&numbered.number);
            at.exceptions.remove(&numbered.number);
            if at.ranges.is_empty() && at.exceptions.is_empty() {
                self.prefixes.remove(prefix);
                let lengths = &mut self.lengths[family(prefix)];
                if let Some(count) = lengths.get_mut(&prefix.prefix_len()) {
                    *count -= 1;
                    if *count == 0 {
                        lengths.remove(&prefix.prefix_len());
                    }
                }
            }
        }
    }

    fn at(&mut self, prefix: IpNet) -> &mut At {
        let lengths = &mut self.lengths[family(&prefix)];
        self.prefixes.entry(prefix).or_insert_with(|| {
            *lengths.entry(prefix.prefix_len()).or_default() += 1;
            At::default()
        })
    }

    pub(super) fn contains(&self, prefix: &IpNet) -> bool {
        *prefix == ALL_V4 || self.prefixes.contains_key(prefix)
    }

    /// The prefixes inside one, itself among them.
    fn inside(&self, cidr: IpNet) -> Vec<IpNet> {
        let first = IpNet::new(cidr.network(), 0).unwrap_or(cidr);
        let last = IpNet::from(cidr.broadcast());
        self.prefixes.range(first..=last).map(|(prefix, _)| *prefix).filter(|prefix| cidr.contains(prefix)).collect()
    }

    /// The atoms that speak of a prefix as a whole.
    pub(super) fn signature(&self, prefix: IpNet) -> Signature {
        signature(self.around(prefix))
    }

    /// The atoms that speak of an address, and the last address of those behind it of which the same do.
    pub(super) fn stretch(&self, address: IpAddr) -> (Signature, IpAddr) {
        let own = IpNet::from(address);
        let whole = IpNet::new(address, 0).unwrap_or(own);
        let next = self.prefixes.range((Bound::Excluded(own), Bound::Unbounded)).next().map(|(next, _)| next);
        let next = next.filter(|next| family(next) == family(&own)).map(|next| before(next.network()));
        let ends = self.around(own).map(|(prefix, _)| prefix.broadcast()).chain(next);
        (self.signature(own), ends.fold(whole.broadcast(), IpAddr::min))
    }

    /// The prefixes around one, itself among them.
    fn around(&self, prefix: IpNet) -> impl Iterator<Item = (IpNet, &At)> {
        let lengths = self.lengths[family(&prefix)].keys().take_while(move |length| **length <= prefix.prefix_len());
        lengths.filter_map(move |length| {
            let around = IpNet::new(prefix.addr(), *length).ok()?.trunc();
            Some((around, self.prefixes.get(&around)?))
        })
    }
}

fn signature<'a>(around: impl Iterator<Item = (IpNet, &'a At)>) -> Signature {
    let (mut speak, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for (_, at) in around {
        speak.extend(&at.ranges);
        silent.extend(&at.exceptions);
    }
    if speak.is_empty() { Signature::default() } else { speak.difference(&silent).map(|number| (*number, 0)).collect() }
}

/// The address before one that is not the first.
fn before(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits().saturating_sub(1)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits().saturating_sub(1)).into(),
    }
}

fn family(prefix: &IpNet) -> usize {
    usize::from(matches!(prefix, IpNet::V6(_)))
}

//! Ranges of addresses: which atoms speak of each.
//!
//! Invariant: every range and every exception of an atom in use is a prefix here, and its signature has all ranges around it folded in, so
//! that the longest prefix of an address says everything that ranges say of it. [`ALL_V4`] is always one: in the map IPv4 lies inside IPv6
//! (`::ffff:0:0/96`), and what is said of `::/0` is said of no IPv4 address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
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
        if self.lengths[family(&prefix)].is_empty() {
            return Signature::default();
        }
        let (mut speak, mut silent) = (BTreeSet::new(), BTreeSet::new());
        for length in self.lengths[family(&prefix)].keys().take_while(|length| **length <= prefix.prefix_len()) {
            let around = IpNet::new(prefix.addr(), *length).map(|around| around.trunc());
            if let Some(at) = around.ok().and_then(|around| self.prefixes.get(&around)) {
                speak.extend(&at.ranges);
                silent.extend(&at.exceptions);
            }
        }
        speak.difference(&silent).map(|number| (*number, 0)).collect()
    }
}

fn family(prefix: &IpNet) -> usize {
    usize::from(matches!(prefix, IpNet::V6(_)))
}

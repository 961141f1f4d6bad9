//! Pairs of pods, each joined in another way, built when first asked for and kept until the end.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use anyhow::{Context, Result};
use osmia_lab::{Encap, Space, Underlay};

use crate::product::{Product, Rules};
use crate::references::{self, Nodes};
use crate::scale::{LARGE, Scale, Teller};

/// A way to join two pods.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// One veth pair: the physical limit.
    Direct,
    /// A second one, to see how good the method is here.
    Again,
    /// Through a program that does nothing but `redirect_peer`: the least that BPF can cost.
    Peer,
    /// Two nodes, `redirect_neigh` alone on the one and `redirect_peer` alone on the other.
    TwoPeer,
    /// Through a node that routes, with conntrack and NAT hooks.
    RoutedCt,
    /// Through two of them.
    TwoRoutedCt,
    /// Through two of them and the kernel's VXLAN device.
    TwoVxlanCt,
    /// Two nodes that route, a wire that segments, no conntrack.
    SegmentedRouted,
    /// As that, with the kernel's VXLAN device.
    SegmentedVxlan,
    /// Osmia: two pods of a node, as every other place of Osmia's under one policy.
    SameNode,
    /// As that, under thousands of policies.
    Policies,
    /// As that, under a policy with thousands of ranges.
    Ranges,
    /// Osmia: two nodes, packets as they are.
    Native,
    /// Osmia: two nodes, VXLAN.
    Overlay,
    /// As `Native`, over a wire that segments.
    SegmentedNative,
    /// As `Overlay`, over a wire that segments.
    SegmentedOverlay,
}

impl Place {
    /// Its name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Again => "direct-again",
            Self::Peer => "redirect_peer alone",
            Self::TwoPeer => "redirect_neigh alone",
            Self::RoutedCt => "routed-ct",
            Self::TwoRoutedCt => "n2-routed-ct",
            Self::TwoVxlanCt => "n2-vxlan-ct",
            Self::SegmentedRouted => "n2gro-routed",
            Self::SegmentedVxlan => "n2gro-vxlan",
            Self::SameNode => "osmia same node",
            Self::Policies => "osmia 5,000 policies",
            Self::Ranges => "osmia 10,000 ranges",
            Self::Native => "osmia native",
            Self::Overlay => "osmia vxlan",
            Self::SegmentedNative => "osmia native, segmenting wire",
            Self::SegmentedOverlay => "osmia vxlan, segmenting wire",
        }
    }
}

/// Two pods. Traffic goes from `from` to `address`, which `to` has on `device`.
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    pub(crate) from: Space,
    pub(crate) to: Space,
    pub(crate) device: String,
    pub(crate) address: IpAddr,
    /// Nodes in between.
    pub(crate) _between: Vec<Space>,
    /// Programs of the bench on the way.
    pub(crate) _links: Vec<OwnedFd>,
}

impl Pair {
    /// What both ends of every pair are set to, so that nothing but the way between them differs.
    pub(crate) fn even_out(&self) -> Result<()> {
        for space in [&self.from, &self.to] {
            space.sysctl(&[
                // The machine's default may pace by timers. Any namespace may choose this one, and nothing is lost here.
                ("net/ipv4/tcp_congestion_control", "reno"),
                ("net/ipv4/ip_local_port_range", "10000 65000"),
                ("net/ipv4/tcp_tw_reuse", "1"),
            ])?;
        }
        Ok(())
    }
}

/// Policies at [`Place::Policies`].
const POLICIES: u16 = 5000;
/// Ranges at [`Place::Ranges`].
const RANGES: u32 = 10_000;

/// What is built so far.
#[derive(Default)]
pub(crate) struct Places {
    pairs: BTreeMap<Place, Rc<Pair>>,
    products: BTreeMap<(&'static str, bool, Rules), Rc<Product>>,
    large: Option<Scale>,
}

impl Places {
    /// The pair of a place.
    pub(crate) fn pair(&mut self, place: Place) -> Result<Rc<Pair>> {
        if let Some(pair) = self.pairs.get(&place) {
            return Ok(pair.clone());
        }
        let pair = self.build(place).with_context(|| format!("build {}", place.name()))?;
        pair.even_out().with_context(|| format!("set up {}", place.name()))?;
        let pair = Rc::new(pair);
        self.pairs.insert(place, pair.clone());
        Ok(pair)
    }

    fn build(&mut self, place: Place) -> Result<Pair> {
        let name = place.name();
        match place {
            Place::Direct | Place::Again => references::direct(name),
            Place::Peer => references::handed_over(name),
            Place::TwoPeer => references::sent_on(name),
            Place::RoutedCt => references::one_node(name),
            Place::TwoRoutedCt => references::two_nodes(name, Nodes { vxlan: false, conntrack: true, segment: false }),
            Place::TwoVxlanCt => references::two_nodes(name, Nodes { vxlan: true, conntrack: true, segment: false }),
            Place::SegmentedRouted => {
                references::two_nodes(name, Nodes { vxlan: false, conntrack: false, segment: true })
            }
            Place::SegmentedVxlan => {
                references::two_nodes(name, Nodes { vxlan: true, conntrack: false, segment: true })
            }
            Place::SameNode | Place::Policies | Place::Ranges => self.same_node(place)?.same_node(name),
            Place::Native => self.product(Encap::Native, Underlay::Passing)?.across(name),
            Place::Overlay => self.product(Encap::Vxlan, Underlay::Passing)?.across(name),
            Place::SegmentedNative => self.product(Encap::Native, Underlay::Segmenting)?.across(name),
            Place::SegmentedOverlay => self.product(Encap::Vxlan, Underlay::Segmenting)?.across(name),
        }
    }

    /// The node of a place that is one: [`Place::SameNode`] unless the place says more of its policies.
    pub(crate) fn same_node(&mut self, place: Place) -> Result<Rc<Product>> {
        let rules = match place {
            Place::Policies => Rules::Policies(POLICIES),
            Place::Ranges => Rules::Ranges(RANGES),
            _ => Rules::One,
        };
        self.governed(Encap::Native, Underlay::Passing, rules)
    }

    /// The two nodes with agents.
    pub(crate) fn product(&mut self, encap: Encap, underlay: Underlay) -> Result<Rc<Product>> {
        self.governed(encap, underlay, Rules::One)
    }

    fn governed(&mut self, encap: Encap, underlay: Underlay, rules: Rules) -> Result<Rc<Product>> {
        let key = (encap.name(), underlay == Underlay::Segmenting, rules);
        if let Some(product) = self.products.get(&key) {
            return Ok(product.clone());
        }
        let product = Product::build(encap, underlay, rules);
        let product = Rc::new(product.with_context(|| format!("nodes with --encap {}", encap.name()))?);
        self.products.insert(key, product.clone());
        Ok(product)
    }

    /// The node of a large cluster.
    pub(crate) fn large(&mut self) -> Result<&mut Scale> {
        if self.large.is_none() {
            self.large = Some(Scale::build(LARGE, Teller::Feed).context("a node of a large cluster")?);
        }
        self.large.as_mut().context("it is there now")
    }
}

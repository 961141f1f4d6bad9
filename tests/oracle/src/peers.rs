//! Who a rule speaks of (NetworkPolicyPeer, IPBlock).

use std::net::IpAddr;

use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPeer};

use crate::{World, labels};

/// As what a rule speaks of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// As anything.
    Anything,
    /// As its pod.
    Pod,
    /// As an address of a range.
    Block,
}

impl World {
    /// Which items of a rule of a policy in `namespace` speak of `address`. "If this field is empty or missing, this rule matches all
    /// sources"; "Items in this list are combined using a logical OR operation."
    pub(crate) fn matched_peers(
        &self,
        namespace: &str,
        peers: Option<&[NetworkPolicyPeer]>,
        address: IpAddr,
    ) -> Vec<Kind> {
        match peers {
            None | Some([]) => vec![Kind::Anything],
            Some(peers) => peers.iter().filter_map(|peer| self.matched(namespace, peer, address)).collect(),
        }
    }

    fn matched(&self, namespace: &str, peer: &NetworkPolicyPeer, address: IpAddr) -> Option<Kind> {
        match (&peer.ip_block, &peer.namespace_selector, &peer.pod_selector) {
            // "If this field is set then neither of the other fields can be." It speaks of every address in the range, pods' too.
            (Some(block), None, None) => is_in_block(block, address).then_some(Kind::Block),
            (None, namespaces, pods) if namespaces.is_some() || pods.is_some() => {
                let pod = self.owner(address)?;
                let own = pod.metadata.namespace.as_deref().unwrap_or_default();
                // "If podSelector is set but namespaceSelector is not: the pods matching in the policy's own namespace."
                let in_namespace = match namespaces {
                    None => own == namespace,
                    // A namespace that nobody knows has no labels to match.
                    Some(selector) => self.namespace_labels(own).is_some_and(|l| labels::matches(selector, l)),
                };
                let labels = pod.metadata.labels.as_ref().unwrap_or(&labels::NONE);
                let is_it = in_namespace && pods.as_ref().is_none_or(|selector| labels::matches(selector, labels));
                is_it.then_some(Kind::Pod)
            }
            // None of the fields, or a block beside a selector: the API refuses it, and it allows nothing.
            _ => None,
        }
    }
}

/// "except is a slice of CIDRs that should not be included within an IPBlock. Except values will be rejected if they are outside the cidr
/// range." A block that the API would refuse speaks of nobody.
fn is_in_block(block: &IPBlock, address: IpAddr) -> bool {
    let Some(range) = Range::parse(&block.cidr) else { return false };
    let Some(except) = block.except.iter().flatten().map(|e| Range::parse(e)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    if except.iter().any(|e| e.bits < range.bits || !range.holds(e.base)) {
        return false;
    }
    range.holds(address) && !except.iter().any(|e| e.holds(address))
}

struct Range {
    base: IpAddr,
    bits: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (base, bits) = text.split_once('/')?;
        let (base, bits) = (base.parse().ok()?, bits.parse().ok()?);
        (bits <= width(base)).then_some(Self { base, bits })
    }

    fn holds(&self, address: IpAddr) -> bool {
        let shift = width(self.base) - self.bits;
        let front = |a: IpAddr| number(a).checked_shr(shift).unwrap_or_default();
        self.base.is_ipv4() == address.is_ipv4() && front(self.base) == front(address)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

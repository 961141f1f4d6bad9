//! The NetworkPolicies that the bench's pods stand under, as objects: the agents make the rows of them.
//!
//! Invariant: whatever else they say, pods of the roles `client` and `server` are isolated in both directions, and the load is allowed by
//! selector (or range) and port. Pods of other roles are selected by none.

use std::fmt::Write as _;
use std::net::IpAddr;

use osmia_lab::POD_NAMESPACE;

use crate::probe::PORT;

/// The last port that the client may send to. What its servers do not let in is judged at both ends.
pub(crate) const LAST_PORT: u16 = PORT + 2;

/// How much policy there is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rules {
    /// One policy.
    One,
    /// So many policies: that one, and others that select the same pods, each of which allows a pod of its own on a port of its own, both ways.
    Policies(u16),
    /// One policy that allows so many ranges, the load's own ends among them: they are found by the longest prefix.
    Ranges(u32),
}

/// Who takes part in the load.
pub(super) struct Ends {
    pub(super) client: IpAddr,
    pub(super) servers: Vec<IpAddr>,
}

impl Rules {
    /// Manifests of all but the policy that allows the load: file names and texts.
    pub(super) fn others(self) -> Vec<(&'static str, String)> {
        let Self::Policies(count) = self else { return Vec::new() };
        let (mut policies, mut pods) = (String::new(), String::new());
        for n in 1..count {
            let peer = format!("[{{podSelector: {{matchLabels: {{peer: p{n}}}}}}}]");
            let ports = format!("[{{port: {}}}]", 10_000 + n);
            policies += &format!(
                "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{namespace: {POD_NAMESPACE}, name: more-{n}, uid: more-{n}}}\nspec: {}\n",
                spec(&peer, &ports, &peer, &ports)
            );
            pods += &peer_pod(n);
        }
        vec![("pods-peers.yaml", pods), ("policies-more.yaml", policies)]
    }

    /// The spec of the policy that allows the load.
    pub(super) fn load(self, ends: &Ends) -> String {
        let ports =
            |last: &str| format!("[{{protocol: TCP, port: {PORT}{last}}}, {{protocol: UDP, port: {PORT}{last}}}]");
        let (enter, leave) = (ports(""), ports(&format!(", endPort: {LAST_PORT}")));
        let role = |role: &str| format!("[{{podSelector: {{matchLabels: {{role: {role}}}}}}}]");
        let Self::Ranges(count) = self else { return spec(&role("client"), &enter, &role("server"), &leave) };
        let mut others = String::new();
        for n in 0..count {
            let [_, b, c, d] = (n << 4).to_be_bytes();
            let bits = if n % 2 == 0 { 28 } else { 32 };
            let _ = write!(others, ", {{ipBlock: {{cidr: 20.{b}.{c}.{d}/{bits}}}}}");
        }
        let ranges = |own: &[IpAddr]| {
            let own: Vec<_> = own.iter().map(|address| format!("{{ipBlock: {{cidr: {address}/32}}}}")).collect();
            format!("[{}{others}]", own.join(", "))
        };
        spec(&ranges(&[ends.client]), &enter, &ranges(&ends.servers), &leave)
    }
}

fn spec(from: &str, enter: &str, to: &str, leave: &str) -> String {
    let ends = "podSelector: {matchExpressions: [{key: role, operator: In, values: [client, server]}]}";
    format!(
        "{{{ends}, policyTypes: [Ingress, Egress], ingress: [{{from: {from}, ports: {enter}}}], egress: [{{to: {to}, ports: {leave}}}]}}"
    )
}

/// A pod somewhere in the cluster.
fn peer_pod(n: u16) -> String {
    let [high, low] = n.to_be_bytes();
    let address = format!("10.244.{}.{low}", 100 + high);
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata: {{namespace: {POD_NAMESPACE}, name: peer-{n}, uid: peer-{n}, labels: {{peer: p{n}}}}}\nspec: {{nodeName: elsewhere, containers: [{{name: main, image: none}}]}}\nstatus: {{phase: Running, podIPs: [{{ip: {address}}}]}}\n"
    )
}

//! What the agent tells the programs while they run: one row, and one for each uplink.

/// `flags`: IPv6 exists in this kernel.
pub const C_IPV6: u32 = 1 << 0;
/// `flags`: beside kube-proxy: unknown local addresses and service ranges go to the stack.
pub const C_STACK_SERVICES: u32 = 1 << 1;
/// `flags`: pods reach no IPv4 link-local address (metadata services, node-local DNS).
pub const C_DENY_LINK_LOCAL: u32 = 1 << 2;

/// The running configuration. Changed as a whole; what decides flows also raises the route generation.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// The one skb mark bit we own ("handled"), for who reads the row: programs have it as a constant of their load.
    pub mark: u32,
    /// `C_*`.
    pub flags: u32,
    /// Ifindex of `osmia0`, towards which routes lead.
    pub door_host: u32,
    /// Ifindex of `osmia1`, where our program sees what the node sends to pods.
    pub door_pods: u32,
    /// Ifindex of the collect-metadata VXLAN device, 0 for none.
    pub tunnel_dev: u32,
    /// VXLAN network identifier.
    pub vni: u32,
    /// UDP port of the tunnel, network order.
    pub tunnel_port: [u8; 2],
    /// MTU of pods, bytes.
    pub pod_mtu: u16,
    /// First port of the masquerade range, native order.
    pub masq_min: u16,
    /// Last port of the masquerade range.
    pub masq_max: u16,
    /// The one MAC of `osmia0` and of all host-side pod links: the pods' gateway.
    pub gateway_mac: [u8; 6],
    /// Zero.
    pub zero: [u8; 2],
    /// This node's InternalIP, IPv4, zero for none.
    pub node4: [u8; 4],
    /// Flows one endpoint may open into the established table.
    pub endpoint_flows: u32,
    /// This node's InternalIP, IPv6, zero for none.
    pub node6: [u8; 16],
    /// Packet-too-big and time-exceeded answers an endpoint gets a second, at most 255.
    pub too_big_rate: u32,
    /// Ticks a second, for who reads the row; see [`super::meta`] and `mark`.
    pub ticks_per_second: u32,
}

/// An uplink, by ifindex.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uplink {
    /// Source for masquerade, IPv4, zero for none.
    pub v4: [u8; 4],
    /// MTU, bytes.
    pub mtu: u32,
    /// Source for masquerade, IPv6, zero for none.
    pub v6: [u8; 16],
    /// Its MAC.
    pub mac: [u8; 6],
    /// Zero.
    pub zero: [u8; 2],
}

const _: () = {
    assert!(size_of::<Config>() == 72);
    assert!(size_of::<Uplink>() == 32);
};
super::pod!(Config, Uplink);

//! What was done, counted: one per-CPU `u64` each. Drops are counted elsewhere ([`super::drops`]).

macro_rules! stats {
    ($($(#[$doc:meta])* $variant:ident = $value:literal $name:literal),+ $(,)?) => {
        /// A counter. Values are stable: they stand in maps and metrics.
        #[repr(u32)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Stat { $($(#[$doc])* $variant = $value),+ }

        impl Stat {
            /// All counters in the order of their values.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name that commands and metrics use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

stats! {
    /// To a pod of this node.
    ForwardPeer = 0 "forward_peer",
    /// To another node as it is.
    ForwardNative = 1 "forward_native",
    /// To another node inside VXLAN.
    ForwardTunnel = 2 "forward_tunnel",
    /// Out of the cluster.
    ForwardUplink = 3 "forward_uplink",
    /// To the node's own stack.
    ForwardStack = 4 "forward_stack",
    /// Left where it was after a rewrite.
    ForwardPass = 5 "forward_pass",
    /// Tunnel packets unpacked by our program.
    Decapsulated = 6 "decapsulated",
    /// Tunnel packets left to the collect-metadata device (UDP GSO).
    DecapsulatedDevice = 7 "decapsulated_device",
    /// Packets put into the tunnel by the collect-metadata device (already encapsulated ones).
    EncapsulatedDevice = 8 "encapsulated_device",
    /// Flows opened.
    FlowOpened = 9 "flow_opened",
    /// Flows moved to the established table.
    FlowPromoted = 10 "flow_promoted",
    /// Flows that stay in probation since the established table is full.
    FlowTableFull = 11 "flow_table_full",
    /// Flows that stay in probation since their endpoint has its share.
    FlowEndpointFull = 12 "flow_endpoint_full",
    /// Packets whose flow was judged again (an epoch or the route generation changed).
    FlowRejudged = 13 "flow_rejudged",
    /// ARP requests of pods answered.
    ArpAnswered = 14 "arp_answered",
    /// Neighbour solicitations of pods answered.
    NdAnswered = 15 "nd_answered",
    /// A pod's own duplicate address detection, swallowed.
    Dad = 16 "pod_dad",
    /// A pod's multicast listener reports (and IGMP), swallowed.
    Mld = 17 "pod_mld",
    /// A pod's router solicitations and other neighbour messages, swallowed.
    RouterSolicit = 18 "pod_router_solicit",
    /// A pod's DHCP requests, swallowed.
    Dhcp = 19 "pod_dhcp",
    /// Packet too big sent.
    TooBigSent = 20 "too_big_sent",
    /// Time exceeded sent.
    TimeExceededSent = 21 "time_exceeded_sent",
    /// To link-local destinations other than the gateway.
    LinkLocal = 22 "link_local",
    /// Flows masqueraded.
    MasqOpened = 23 "masquerade_opened",
    /// ICMP errors that followed their flow.
    IcmpErrorRelated = 24 "icmp_error_related",
    /// Later fragments that found their first.
    FragmentFollowed = 25 "fragment_followed",
    /// Later fragments that passed by addresses alone.
    FragmentLoose = 26 "fragment_loose",
    /// Flows of pods to where the kernel would not forward and no row leads: its stack takes them, or answers that there is no route.
    Unrouted = 27 "unrouted",
}

/// Rows of the per-CPU `stats` array.
pub const STAT_ROWS: u32 = 64;

const _: () = {
    let mut i = 0;
    while i < Stat::ALL.len() {
        assert!(Stat::ALL[i] as usize == i);
        i += 1;
    }
    assert!(Stat::ALL.len() <= STAT_ROWS as usize);
};

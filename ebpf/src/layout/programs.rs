//! Names of the programs: what the loader attaches, and what it puts into the jump table.

/// A program that sits on a hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attached {
    /// Its name in the object and in the kernel (at most 15 bytes).
    pub name: &'static str,
    /// tcx ingress, else egress, of its device.
    pub ingress: bool,
}

/// Host side of a pod's link: everything the pod sends.
pub const FROM_POD: Attached = Attached { name: "osm_from_pod", ingress: true };
/// Host side of a pod's link: what the node would send there by itself.
pub const TO_POD: Attached = Attached { name: "osm_to_pod", ingress: false };
/// Uplinks.
pub const FROM_UPLINK: Attached = Attached { name: "osm_from_uplnk", ingress: true };
/// Uplinks.
pub const TO_UPLINK: Attached = Attached { name: "osm_to_uplnk", ingress: false };
/// The collect-metadata VXLAN device.
pub const FROM_TUNNEL_DEVICE: Attached = Attached { name: "osm_from_tundev", ingress: true };
/// `osmia0`.
pub const TO_DOOR: Attached = Attached { name: "osm_to_door", ingress: false };
/// `osmia1`.
pub const FROM_DOOR: Attached = Attached { name: "osm_from_door", ingress: true };

/// All of them.
pub const ATTACHED: [Attached; 7] = [FROM_POD, TO_POD, FROM_UPLINK, TO_UPLINK, FROM_TUNNEL_DEVICE, TO_DOOR, FROM_DOOR];

/// Returns `bpf_jiffies64`, cut to 32 bits, by test-run: how the agent learns the clock.
pub const CLOCK: &str = "osm_clock";

/// Returns 1 by test-run where `l4_csum_replace` takes `BPF_F_IPV6`; the loader then sets the global `HAVE_CSUM_IPV6`.
pub const HAS_CSUM_IPV6: &str = "osm_has_csum_v6";

/// Global (`u32`): the skb mark bit that is ours.
pub const MARK: &str = "MARK";
/// [`MARK`] unless the agent is told otherwise.
pub const DEFAULT_MARK: u32 = 0x0100_0000;
/// Global (`u32`): bits to shift jiffies right by for a tick ([`super::meta`]).
pub const TICK_SHIFT: &str = "TICK_SHIFT";
/// Global (`u32`): ticks a second.
pub const TICKS_PER_SECOND: &str = "TICKS_PER_SECOND";

/// Global (`u8`): which of aya-log's levels the programs log; 0 is none, and the verifier removes the calls. Without the loader's value: all.
pub const LOG_LEVEL: &str = "AYA_LOG_LEVEL";

/// The jump table `progs`: name of the program by row, [`crate::logic::Stage`] by value. A missing row makes packets that need it drop
/// with `PROGRAM`.
pub const JUMPS: [&str; 27] = [
    "osm_pod4",
    "osm_pod6",
    "osm_uplink4",
    "osm_uplink6",
    "osm_tunnel4",
    "osm_tunnel6",
    "osm_out4",
    "osm_out6",
    "osm_door4",
    "osm_door6",
    "osm_inner4",
    "osm_inner6",
    "osm_entry4",
    "osm_entry6",
    "osm_decide",
    "osm_open4",
    "osm_open6",
    "osm_masq4",
    "osm_masq6",
    "osm_promote4",
    "osm_promote6",
    "osm_leave4",
    "osm_leave6",
    "osm_refuse4",
    "osm_refuse6",
    "osm_related4",
    "osm_related6",
];

/// Rows of `progs`.
pub const JUMP_ROWS: u32 = 64;

const _: () = {
    let mut i = 0;
    while i < ATTACHED.len() {
        assert!(ATTACHED[i].name.len() <= 15);
        i += 1;
    }
    let mut i = 0;
    while i < JUMPS.len() {
        assert!(JUMPS[i].len() <= 15);
        i += 1;
    }
    assert!(JUMPS.len() <= JUMP_ROWS as usize);
};

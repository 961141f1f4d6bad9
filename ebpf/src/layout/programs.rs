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
pub const ATTACHED: [Attached; 7] =
    [FROM_POD, TO_POD, FROM_UPLINK, TO_UPLINK, FROM_TUNNEL_DEVICE, TO_DOOR, FROM_DOOR];

/// Returns `bpf_jiffies64`, cut to 32 bits, by test-run: how the agent learns the clock.
pub const CLOCK: &str = "osm_clock";

/// Returns 1 by test-run where `l4_csum_replace` takes `BPF_F_IPV6`; the loader then sets the global `HAVE_CSUM_IPV6`.
pub const HAS_CSUM_IPV6: &str = "osm_has_csum_v6";

/// The jump table `progs`: name of the program by row. A missing row makes packets that need it drop with `PROGRAM`.
pub const SLOW: [&str; 10] = [
    "osm_slow_pod4",
    "osm_slow_pod6",
    "osm_slow_upl4",
    "osm_slow_upl6",
    "osm_slow_tun4",
    "osm_slow_tun6",
    "osm_slow_out4",
    "osm_slow_out6",
    "osm_slow_door4",
    "osm_slow_door6",
];

/// Rows of `progs`.
pub const SLOW_ROWS: u32 = 32;

const _: () = {
    let mut i = 0;
    while i < ATTACHED.len() {
        assert!(ATTACHED[i].name.len() <= 15);
        i += 1;
    }
    let mut i = 0;
    while i < SLOW.len() {
        assert!(SLOW[i].len() <= 15);
        i += 1;
    }
    assert!(SLOW.len() <= SLOW_ROWS as usize);
};

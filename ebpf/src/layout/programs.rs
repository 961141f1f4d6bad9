//! Names of the programs in the object (at most 15 bytes, as the kernel keeps them), and what runs where.

/// Ingress of a pod's host-side link.
pub const FROM_POD: &str = "osm_from_pod";
/// Egress of a pod's host-side link.
pub const TO_POD: &str = "osm_to_pod";
/// Ingress of an uplink.
pub const FROM_UPLINK: &str = "osm_from_uplnk";
/// Egress of an uplink.
pub const TO_UPLINK: &str = "osm_to_uplnk";
/// Ingress of the collect-metadata device.
pub const FROM_TUNNEL_DEVICE: &str = "osm_from_tundev";
/// Egress of `osmia0`.
pub const TO_DOOR: &str = "osm_to_door";
/// Ingress of `osmia1`.
pub const FROM_DOOR: &str = "osm_from_door";
/// Attached nowhere: a test run returns the low 32 bits of jiffies, from which the agent learns how long a tick is.
pub const CLOCK: &str = "osm_clock";

/// Every program that is attached.
pub const HOOKS: [&str; 7] = [FROM_POD, TO_POD, FROM_UPLINK, TO_UPLINK, FROM_TUNNEL_DEVICE, TO_DOOR, FROM_DOOR];

/// Start of the names of slow-path programs. Row i of the jump table is the i-th of them in [`SLOW`].
pub const SLOW_PREFIX: &str = "osm_slow_";
/// The slow-path programs by their row in the jump table. The object has exactly these with [`SLOW_PREFIX`].
pub const SLOW: &[&str] = &[];

/// Global (`u32`): bits to shift jiffies right by for a tick, see [`super::meta`].
pub const TICK_SHIFT: &str = "TICK_SHIFT";

const _: () = {
    let mut i = 0;
    while i < HOOKS.len() {
        assert!(HOOKS[i].len() <= 15);
        i += 1;
    }
    let mut i = 0;
    while i < SLOW.len() {
        assert!(SLOW[i].len() <= 15);
        i += 1;
    }
};

//! Policy: the class of an address, and the verdict of a rule set on a class.
//!
//! Invariant: a rule set and a class never change their meaning, and a number is never given twice while these maps live: what changes gets
//! a new number, to which pointers (endpoint rows, `peers`, `peer_blocks`) are turned. So whoever has read a pointer may still ask its rows.

/// Rule set of an endpoint that is not isolated in a direction: no row is asked for.
pub const OPEN: u32 = 0;

/// What a verdict is asked about. Prefixes of it are rows, the longest decides: 32 bits are all a rule set says of anybody (its *base*),
/// 64 all of a class, 80 a protocol, up to 96 a range of ports.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Asked {
    /// Rule set, native order.
    pub set: u32,
    /// Class of the peer, native order; 0: of whom no rule in use speaks.
    pub class: u32,
    /// 0: a packet whose port is known; [`PART_LOOSE`].
    pub part: u8,
    /// IP protocol number.
    pub proto: u8,
    /// Destination port, network order; 0 for protocols without.
    pub port: [u8; 2],
}

/// `part`: a later fragment whose first was not seen, of a protocol with ports. Its rows have 80 bits: whether any port of it is allowed.
pub const PART_LOOSE: u8 = 1;

/// Bits of a row that says what a rule set does with whom no other row of it speaks of.
pub const BASE_BITS: u32 = 32;
/// Bits of a row about all traffic with a class.
pub const CLASS_BITS: u32 = 64;
/// Bits of a row about all ports of a protocol.
pub const PROTO_BITS: u32 = 80;
/// Bits of a row about one port, and of what a packet asks.
pub const PORT_BITS: u32 = 96;

/// Key of a verdict row.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VerdictKey {
    /// How many bits of `asked` count, native order (kernel's `bpf_lpm_trie_key`); those behind are zero.
    pub bits: u32,
    /// What it is about.
    pub asked: Asked,
}

/// `flags`: allowed; else denied.
pub const V_ALLOW: u32 = 1 << 0;
/// `flags`: the row has [`BASE_BITS`]; what class 0 may do comes before it.
pub const V_BASE: u32 = 1 << 1;

/// A verdict row. Of the alignment of its key: in a trie it lies right behind that.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VerdictRow {
    /// `V_*`.
    pub flags: u32,
    /// Names the rule that allows, or what isolates; the catalogue knows it.
    pub cookie: u32,
}

const _: () = {
    assert!(size_of::<Asked>() == 12);
    assert!(size_of::<VerdictKey>() == 16);
    assert!(size_of::<VerdictRow>() == 8);
};
super::pod!(Asked, VerdictKey, VerdictRow);

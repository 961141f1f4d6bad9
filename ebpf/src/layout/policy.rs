//! Policy: the class of an address, and the verdict of a rule set on a class.
//!
//! Invariant: a rule set and a class never change their meaning, and a number is never given twice while these maps live: what changes gets
//! a new number, to which pointers (endpoint rows, `peers`, `peer_blocks`) are turned. So whoever has read a pointer may still ask its rows.

/// Rule set of an endpoint that is not isolated in a direction: no row is asked for.
pub const OPEN: u32 = 0;

/// What a verdict is asked about. A row is about its first bits: 64 are all of a rule set and a class (the *head* of that pair), 80 a
/// protocol, up to 96 a range of ports. The longest that is there decides, and the head says which lengths are worth asking for.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Asked {
    /// Rule set, native order.
    pub set: u32,
    /// Class of the peer, native order; 0: of whom no rule in use speaks, and each class with which the rule set has no rows.
    pub class: u32,
    /// 0: a packet whose port is known; [`PART_LOOSE`], of which no row but a head speaks.
    pub part: u8,
    /// IP protocol number.
    pub proto: u8,
    /// Destination port, network order; 0 for protocols without.
    pub port: [u8; 2],
}

/// `part`: a later fragment whose first was not seen, of a protocol with ports: [`VerdictRow::loose`].
pub const PART_LOOSE: u8 = 1;

/// Bits of a head: all traffic with a class.
pub const CLASS_BITS: u32 = 64;
/// Bits of a row about all ports of a protocol.
pub const PROTO_BITS: u32 = 80;
/// Bits of a row about one port, and of what a packet asks.
pub const PORT_BITS: u32 = 96;

/// Key of a verdict row.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct VerdictKey {
    /// How many bits of `asked` count, native order; those behind are zero.
    pub bits: u32,
    /// What it is about.
    pub asked: Asked,
}

impl VerdictKey {
    /// The head of a rule set and a class.
    #[inline(always)]
    #[must_use]
    pub const fn head(set: u32, class: u32) -> Self {
        Self { bits: CLASS_BITS, asked: Asked { set, class, part: 0, proto: 0, port: [0; 2] } }
    }

    /// The row about the ports that have the first bits of this one in common; `bits` from [`PROTO_BITS`] to [`PORT_BITS`].
    #[inline(always)]
    #[must_use]
    pub const fn ports(asked: &Asked, bits: u32) -> Self {
        let open = PORT_BITS.saturating_sub(bits) & 31;
        let port = (u16::from_be_bytes(asked.port) as u32 >> open) << open;
        Self { bits, asked: Asked { part: 0, port: (port as u16).to_be_bytes(), ..*asked } }
    }
}

/// `flags`: allowed; else denied.
pub const V_ALLOW: u32 = 1 << 0;
/// `flags` of a head: the pair has a row of [`PROTO_BITS`]; the next bit, of one more; up to [`PORT_BITS`].
pub const V_PROTO: u32 = 1 << 8;

/// `flags` of a head whose pair has rows of this length, from [`PROTO_BITS`] to [`PORT_BITS`].
#[inline(always)]
#[must_use]
pub const fn narrower(bits: u32) -> u32 {
    V_PROTO << (bits.saturating_sub(PROTO_BITS) & 31)
}

/// Protocols with ports (IANA numbers), in the order of [`VerdictRow::loose`].
pub const LOOSE: [u8; 3] = [6, 17, 132];

/// A verdict row.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VerdictRow {
    /// `V_*`.
    pub flags: u32,
    /// Names the rule that allows, or what isolates; the catalogue knows it.
    pub cookie: u32,
    /// Of a head: names the rule that allows some port of a protocol, by [`LOOSE`]; 0: what the head itself says.
    pub loose: [u32; 3],
}

impl VerdictRow {
    /// All cookies of it.
    pub fn cookies(&self) -> impl Iterator<Item = u32> {
        let loose = self.loose.into_iter().filter(|cookie| *cookie != 0);
        core::iter::once(self.cookie).chain(loose)
    }
}

const _: () = {
    assert!(size_of::<Asked>() == 12);
    assert!(size_of::<VerdictKey>() == 16);
    assert!(size_of::<VerdictRow>() == 20);
};
super::pod!(Asked, VerdictKey, VerdictRow);

//! One address type for both families in every table that is not on the path of an established packet.

/// An IPv4 or IPv6 address, network order; IPv4 in its mapped form `::ffff:a.b.c.d` (RFC 4291, 2.5.5.2).
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Addr(pub [u8; 16]);

const _: () = assert!(size_of::<Addr>() == 16);
super::pod!(Addr);

impl Addr {
    /// The unspecified address: "none" wherever an address may be absent.
    pub const NONE: Self = Self([0; 16]);
    /// Bits of the mapped prefix: an IPv4 prefix of length n is `MAPPED_BITS + n` bits long here.
    pub const MAPPED_BITS: u32 = 96;

    /// An IPv4 address in its mapped form.
    #[inline(always)]
    #[must_use]
    pub const fn v4(a: [u8; 4]) -> Self {
        Self([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a[0], a[1], a[2], a[3]])
    }

    /// An IPv6 address.
    #[inline(always)]
    #[must_use]
    pub const fn v6(a: [u8; 16]) -> Self {
        Self(a)
    }

    /// Both halves as they lie in memory.
    #[inline(always)]
    #[must_use]
    pub const fn words(&self) -> [u64; 2] {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = self.0;
        [u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u64::from_ne_bytes([i, j, k, l, m, n, o, p])]
    }

    /// The address of [`Self::words`].
    #[inline(always)]
    #[must_use]
    pub const fn of_words([front, back]: [u64; 2]) -> Self {
        let [a, b, c, d, e, f, g, h] = front.to_ne_bytes();
        let [i, j, k, l, m, n, o, p] = back.to_ne_bytes();
        Self([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
    }

    /// Whether this is an IPv4 address in its mapped form.
    #[inline(always)]
    #[must_use]
    pub const fn is_v4(&self) -> bool {
        let [front, back] = self.words();
        let [_, prefix] = Self::v4([0; 4]).words();
        let [_, mask] = Self([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).words();
        front == 0 && back & mask == prefix
    }

    /// The last four bytes: the IPv4 address of a mapped one.
    #[inline(always)]
    #[must_use]
    pub const fn to_v4(&self) -> [u8; 4] {
        [self.0[12], self.0[13], self.0[14], self.0[15]]
    }

    /// Whether no router sends on what comes from it or goes to it: unspecified, loopback, link-local, multicast and broadcast (RFC 6890).
    #[inline(always)]
    #[must_use]
    pub const fn is_of_a_link(&self) -> bool {
        if self.is_v4() {
            return matches!(self.to_v4(), [0 | 127 | 224..=255, ..] | [169, 254, ..]);
        }
        let loopback_or_none = matches!(self.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 | 1]);
        loopback_or_none || self.0[0] == 0xff || (self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80)
    }

    /// Whether no address is meant.
    #[inline(always)]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        let [front, back] = self.words();
        front | back == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_are_told_apart_by_the_whole_prefix() {
        assert!(Addr::v4([0; 4]).is_v4() && Addr::v4([255; 4]).is_v4());
        assert!(!Addr::NONE.is_v4() && Addr::NONE.is_none());
        for at in 0..12 {
            let mut other = Addr::v4([10, 0, 0, 1]);
            other.0[at] ^= 0x80;
            assert!(!other.is_v4() && !other.is_none(), "byte {at}");
        }
        let addr = Addr(*b"0123456789abcdef");
        assert_eq!(Addr::of_words(addr.words()), addr);
    }
}

//! One's complement sums (RFC 1071), in the order the bytes lie in memory, which is how the kernel's helpers take them.

/// Adds with end-around carry.
#[inline(always)]
#[must_use]
pub const fn add(a: u32, b: u32) -> u32 {
    let s = a.wrapping_add(b);
    s.wrapping_add((s < a) as u32)
}

/// Folds to 16 bits.
#[inline(always)]
#[must_use]
pub const fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// The checksum field of a sum: its complement, as bytes for the packet.
#[inline(always)]
#[must_use]
pub const fn field(sum: u32) -> [u8; 2] {
    (!fold(sum)).to_ne_bytes()
}

/// Sum of two bytes at an even offset.
#[inline(always)]
#[must_use]
pub const fn of2(b: [u8; 2]) -> u32 {
    u16::from_ne_bytes(b) as u32
}

/// Sum of four bytes at an even offset.
#[inline(always)]
#[must_use]
pub const fn of4(b: [u8; 4]) -> u32 {
    u32::from_ne_bytes(b)
}

/// Sum of an IPv6 address.
#[inline(always)]
#[must_use]
pub const fn of16(b: &[u8; 16]) -> u32 {
    let s = add(of4([b[0], b[1], b[2], b[3]]), of4([b[4], b[5], b[6], b[7]]));
    add(s, add(of4([b[8], b[9], b[10], b[11]]), of4([b[12], b[13], b[14], b[15]])))
}

/// What a sum changes by when `from` becomes `to`.
#[inline(always)]
#[must_use]
pub const fn diff(from: u32, to: u32) -> u32 {
    add(!from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, section 3: the example's bytes, both ways round.
    #[test]
    fn sums_the_rfc_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        let sum = add(of4([bytes[0], bytes[1], bytes[2], bytes[3]]), of4([bytes[4], bytes[5], bytes[6], bytes[7]]));
        assert_eq!(fold(sum).to_ne_bytes(), [0xdd, 0xf2]);
        assert_eq!(field(sum), [0x22, 0x0d]);
    }

    #[test]
    fn a_difference_moves_a_sum_from_old_to_new_bytes() {
        let (old, new) = ([10, 0, 0, 1], [192, 168, 255, 254]);
        let rest = of4([0x45, 0, 0xff, 0xff]);
        let before = add(rest, of4(old));
        let after = add(rest, of4(new));
        assert_eq!(fold(add(before, diff(of4(old), of4(new)))), fold(after));
    }
}

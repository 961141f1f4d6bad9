//! Bytes that the receiver can check without having seen them: a seed and an index in front, and what follows from both.

/// Bytes in front: seed, index.
const HEAD: usize = 12;

/// A payload of `length` bytes, at least 12.
pub(super) fn make(seed: u64, index: u32, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length.max(HEAD));
    bytes.extend(seed.to_be_bytes());
    bytes.extend(index.to_be_bytes());
    let mut state = seed ^ (u64::from(index) << 32) | 1;
    while bytes.len() < length {
        // xorshift64 (Marsaglia 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push(state.to_be_bytes()[0]);
    }
    bytes
}

/// The index of a payload of this probe, and whether it is whole; `None` for one of somebody else.
pub(super) fn read(seed: u64, bytes: &[u8]) -> Option<(u32, bool)> {
    let index = bytes.strip_prefix(&seed.to_be_bytes())?.first_chunk().map(|b| u32::from_be_bytes(*b))?;
    Some((index, make(seed, index, bytes.len()) == bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_shows() {
        let mut bytes = make(7, 3, 100);
        assert_eq!(read(7, &bytes), Some((3, true)));
        bytes[50] ^= 1;
        assert_eq!(read(7, &bytes), Some((3, false)));
        assert_eq!(read(8, &bytes), None);
        assert_eq!(read(7, &bytes[..10]), None);
    }
}

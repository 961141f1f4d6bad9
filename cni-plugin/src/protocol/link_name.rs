//! Name of the host-side link. Both sides derive it from the key, so that either can remove the link without the other.

use super::AttachmentKey;

/// Prefix of every host-side link of ours.
pub const PREFIX: &str = "osm";

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Host-side link name of an attachment: `osm` and 12 characters of a 60-bit hash, 15 bytes in all (IFNAMSIZ − 1).
///
/// The hash is FNV-1a (64 bits, folded to 60) over container id, a zero byte and interface name: it must stay the same over versions
/// and compilers, since a DEL may meet a link that an older plugin made.
#[must_use]
pub fn host_link_name(key: &AttachmentKey) -> String {
    let bytes = key.container_id().bytes().chain([0]).chain(key.ifname().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let folded = (hash ^ (hash >> 60)) & ((1 << 60) - 1);
    let mut name = String::from(PREFIX);
    for i in (0..12).rev() {
        let index = (folded >> (5 * i)) & 31;
        name.push(char::from(ALPHABET.get(index as usize).copied().unwrap_or(b'0')));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(id: &str, ifname: &str) -> String {
        host_link_name(&AttachmentKey::new(id, ifname).unwrap())
    }

    #[test]
    fn fits_an_interface_name_and_never_changes() {
        assert_eq!(name("c1", "eth0").len(), 15);
        // A link made by an older version must be found by a newer one: this value is forever.
        assert_eq!(name("c1", "eth0"), "osmafr2pezyjjad");
    }

    #[test]
    fn differs_by_each_part() {
        let mut seen = std::collections::HashSet::new();
        for id in 0..5000 {
            for ifname in ["eth0", "net1"] {
                assert!(seen.insert(name(&format!("{id:064x}"), ifname)));
            }
        }
        assert_ne!(name("ab", "c"), name("a", "bc"));
    }
}

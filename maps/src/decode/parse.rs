//! Addresses, prefixes and numbers as people write them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use osmia_ebpf::layout::Addr;

/// The address a row means; a mapped IPv4 address is IPv4.
#[must_use]
pub fn ip(addr: Addr) -> IpAddr {
    if addr.is_v4() { Ipv4Addr::from(addr.to_v4()).into() } else { Ipv6Addr::from(addr.0).into() }
}

/// The row's form of an address.
#[must_use]
pub(super) fn addr(ip: IpAddr) -> Addr {
    match ip {
        IpAddr::V4(v4) => Addr::v4(v4.octets()),
        IpAddr::V6(v6) => Addr::v6(v6.octets()),
    }
}

/// An address, IPv4 or IPv6.
///
/// # Errors
/// It is none.
pub fn address(text: &str) -> Result<Addr, String> {
    text.parse().map(addr).map_err(|_| format!("`{text}` is no address"))
}

/// `address`, `address:port`, `[v6]:port`; no port is port 0.
pub(super) fn socket(text: &str) -> Result<(Addr, [u8; 2]), String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok((addr(ip), [0; 2]));
    }
    let both: SocketAddr =
        text.parse().map_err(|_| format!("`{text}` is no address:port (IPv6 as in `[fd00::1]:80`)"))?;
    Ok((addr(both.ip()), both.port().to_be_bytes()))
}

/// What [`socket`] reads.
#[must_use]
pub fn socket_text(addr: Addr, port: [u8; 2]) -> String {
    match u16::from_be_bytes(port) {
        0 => ip(addr).to_string(),
        port => SocketAddr::new(ip(addr), port).to_string(),
    }
}

/// A number, decimal or `0x…`.
///
/// # Errors
/// It is none, or too large.
pub fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let number = parsed.map_err(|_| format!("`{text}` is no number"))?;
    T::try_from(number).map_err(|_| format!("{text} is too large"))
}

/// A prefix; `bits` counts in the mapped form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// Its address.
    pub addr: Addr,
    /// Length.
    pub bits: u32,
}

impl Prefix {
    /// Whether an address lies in it.
    #[must_use]
    pub fn covers(&self, other: Addr) -> bool {
        let bits = self.bits.min(128);
        // 128 is the one length for which the shift would overflow on the other side.
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        (u128::from_be_bytes(self.addr.0) ^ u128::from_be_bytes(other.0)) & mask == 0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v4 = self.bits >= Addr::MAPPED_BITS && self.addr.is_v4();
        match v4 {
            true => write!(f, "{}/{}", ip(self.addr), self.bits - Addr::MAPPED_BITS),
            false => write!(f, "{}/{}", Ipv6Addr::from(self.addr.0), self.bits),
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (of, length) = match text.split_once('/') {
            Some((of, length)) => (of, Some(number::<u32>(length)?)),
            None => (text, None),
        };
        let ip: IpAddr = of.parse().map_err(|_| format!("`{text}` is no address or prefix"))?;
        let (base, most) = if ip.is_ipv4() { (Addr::MAPPED_BITS, 32) } else { (0, 128) };
        match length.unwrap_or(most) {
            length if length > most => Err(format!("/{length} is longer than an address")),
            length => Ok(Self { addr: addr(ip), bits: base + length }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_comes_back_from_its_text() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "10.1.2.3/32", "fd00::/8", "::/0", "::ffff:0.0.0.0/90", "fd00::1/128"] {
            assert_eq!(text.parse::<Prefix>().unwrap().to_string(), text);
        }
        assert_eq!("10.0.0.1".parse::<Prefix>().unwrap().to_string(), "10.0.0.1/32");
        assert!("10.0.0.0/33".parse::<Prefix>().is_err());
        assert!("10.0.0/8".parse::<Prefix>().is_err());
    }

    #[test]
    fn a_prefix_covers_what_its_bits_say() {
        let covers = |prefix: &str, ip: &str| prefix.parse::<Prefix>().unwrap().covers(address(ip).unwrap());
        assert!(covers("10.0.0.0/8", "10.255.0.1"));
        assert!(!covers("10.0.0.0/8", "11.0.0.1"));
        assert!(covers("10.0.0.1/32", "10.0.0.1"));
        assert!(!covers("10.0.0.1/32", "10.0.0.2"));
        assert!(covers("0.0.0.0/0", "1.2.3.4"));
        assert!(!covers("0.0.0.0/0", "fd00::1"));
        assert!(covers("::/0", "fd00::1"));
        // Bytes nobody writes.
        assert!(!Prefix { addr: Addr([255; 16]), bits: u32::MAX }.covers(Addr::NONE));
    }

    #[test]
    fn a_socket_comes_back_from_its_text() {
        for text in ["10.0.0.1:80", "10.0.0.1", "[fd00::1]:65535", "fd00::1"] {
            let (addr, port) = socket(text).unwrap();
            assert_eq!(socket_text(addr, port), text);
        }
        assert!(socket("10.0.0.1:65536").is_err());
        assert!(socket("fd00::1:80:").is_err());
    }

    #[test]
    fn numbers_are_decimal_or_hex() {
        assert_eq!(number::<u16>("0xffff"), Ok(65535));
        assert!(number::<u16>("65536").is_err());
        assert!(number::<u32>("-1").is_err());
    }
}

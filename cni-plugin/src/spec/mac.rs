//! Ethernet addresses in text.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address, in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mac(pub [u8; 6]);

/// Not six bytes in hexadecimal.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no Ethernet address like \"02:00:00:00:00:01\"")]
pub struct MacError(String);

impl Mac {
    /// A device may carry it: neither a group's address nor all zero.
    #[must_use]
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = part.and_then(|p| u8::from_str_radix(p, 16).ok()).ok_or_else(|| MacError(text.to_owned()))?;
        }
        if parts.next().is_some() { Err(MacError(text.to_owned())) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<&[u8]> for Mac {
    type Error = MacError;

    fn try_from(bytes: &[u8]) -> Result<Self, MacError> {
        bytes.try_into().map(Self).map_err(|_| MacError(format!("{bytes:02x?}")))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write_and_writes_one_form() {
        for text in ["02:6F:73:6d:00:01", "02-6f-73-6d-00-01"] {
            assert_eq!(text.parse::<Mac>().unwrap().to_string(), "02:6f:73:6d:00:01");
        }
        for text in
            ["", "02:6f:73:6d:00", "02:6f:73:6d:00:01:02", "2:6f:73:6d:0:1", "+2:6f:73:6d:00:01", "zz:6f:73:6d:00:01"]
        {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
        assert!(
            !Mac([1, 0, 0, 0, 0, 0]).is_station() && !Mac([0; 6]).is_station() && Mac([2, 0, 0, 0, 0, 0]).is_station()
        );
    }
}

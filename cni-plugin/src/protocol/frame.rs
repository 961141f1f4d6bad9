//! Framing: 4 bytes length (big endian), then JSON `{"protocol": n, …}`. At most 1 MiB.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::PROTOCOL;

/// Longest frame in bytes: larger than any configuration a runtime sends, small enough to hold in memory.
pub const MAX_FRAME: usize = 1 << 20;

#[derive(Serialize)]
struct Sent<'a, T> {
    protocol: u32,
    body: &'a T,
}

#[derive(Deserialize)]
struct Version {
    protocol: u32,
}

#[derive(Deserialize)]
struct Received<T> {
    body: T,
}

/// Why a frame was refused.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The other side is of another version.
    #[error(
        "the other side speaks protocol {theirs}, this one {PROTOCOL}: plugin and agent must come from one release"
    )]
    Protocol {
        /// What they said.
        theirs: u32,
    },
    /// Longer than [`MAX_FRAME`].
    #[error("a message of {0} bytes is longer than the allowed {MAX_FRAME}")]
    TooLong(usize),
    /// Not what was expected.
    #[error("cannot decode a message: {0}")]
    Decode(#[from] serde_json::Error),
    /// The connection failed or closed.
    #[error("connection: {0}")]
    Io(#[from] io::Error),
}

/// The bytes of a message, length included.
///
/// # Errors
/// The message is too long.
pub fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, FrameError> {
    let json = serde_json::to_vec(&Sent { protocol: PROTOCOL, body })?;
    if json.len() > MAX_FRAME {
        return Err(FrameError::TooLong(json.len()));
    }
    let mut frame = Vec::with_capacity(4 + json.len());
    frame.extend_from_slice(&(json.len() as u32).to_be_bytes());
    frame.extend_from_slice(&json);
    Ok(frame)
}

/// The length a frame's first four bytes promise.
///
/// # Errors
/// Longer than allowed.
pub fn length(head: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(head) as usize;
    if length > MAX_FRAME { Err(FrameError::TooLong(length)) } else { Ok(length) }
}

/// The message in a frame's body.
///
/// # Errors
/// Another protocol version, or not a message of this type.
pub fn decode<T: DeserializeOwned>(json: &[u8]) -> Result<T, FrameError> {
    // The version first: a message of another version need not parse.
    let Version { protocol } = serde_json::from_slice(json)?;
    if protocol != PROTOCOL {
        return Err(FrameError::Protocol { theirs: protocol });
    }
    Ok(serde_json::from_slice::<Received<T>>(json)?.body)
}

/// Writes one message.
///
/// # Errors
/// Too long, or the connection failed.
pub fn write<T: Serialize>(to: &mut impl Write, body: &T) -> Result<(), FrameError> {
    to.write_all(&encode(body)?)?;
    Ok(to.flush()?)
}

/// Reads one message.
///
/// # Errors
/// See [`FrameError`]; a connection that closes first is `Io` with `UnexpectedEof`.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<T, FrameError> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let mut json = vec![0; length(head)?];
    from.read_exact(&mut json)?;
    decode(&json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{AttachmentKey, Request};

    #[test]
    fn a_message_survives_the_way() {
        let request = Request::Delete { key: AttachmentKey::new("c1", "eth0").unwrap(), started_ns: u64::MAX };
        let bytes = encode(&request).unwrap();
        assert_eq!(read::<Request>(&mut bytes.as_slice()).unwrap(), request);
    }

    #[test]
    fn another_version_is_named_not_misread() {
        let error = decode::<Request>(br#"{"protocol":99,"body":{"verb":"from-the-future"}}"#).unwrap_err();
        assert!(error.to_string().contains("99"), "{error}");
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_it_is_read() {
        let mut bytes = u32::MAX.to_be_bytes().to_vec();
        bytes.extend_from_slice(b"{}");
        assert!(matches!(read::<Request>(&mut bytes.as_slice()), Err(FrameError::TooLong(_))));
    }

    #[test]
    fn a_torn_message_is_an_error() {
        let bytes = encode(&Request::Status).unwrap();
        for cut in 0..bytes.len() {
            assert!(read::<Request>(&mut &bytes[..cut]).is_err());
        }
    }
}

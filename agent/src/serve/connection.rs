//! One connection of the plugin: frames in, a descriptor beside them, answers out.

use std::{io, os::fd::OwnedFd};

use osmia_cni::protocol::{
    Answer, Request,
    frame::{self, FrameError},
    handover,
};
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::UnixStream,
};

/// A request and the network namespace that came with it.
pub type Received = (Request, Option<OwnedFd>);

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    buffer: Vec<u8>,
    fd: Option<OwnedFd>,
}

impl Connection {
    /// Takes an accepted stream.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, buffer: Vec::new(), fd: None }
    }

    /// The next request; `None` where the plugin closed. Cancel-safe: what was read is kept.
    ///
    /// # Errors
    /// The connection failed, was closed inside a frame, or the frame is none of ours.
    pub async fn request(&mut self) -> Result<Option<Received>, FrameError> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<4>() {
                let length = frame::length(*head)?;
                if let Some(json) = self.buffer.get(4..4 + length) {
                    let request = frame::decode(json)?;
                    self.buffer.drain(..4 + length);
                    return Ok(Some((request, self.fd.take())));
                }
            }
            let mut chunk = [0; 4096];
            let (bytes, fd) =
                self.stream.async_io(Interest::READABLE, || handover::receive(&self.stream, &mut chunk)).await?;
            self.fd = fd.or(self.fd.take());
            if bytes == 0 {
                let whole = self.buffer.is_empty();
                return if whole { Ok(None) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) };
            }
            self.buffer.extend_from_slice(chunk.get(..bytes).unwrap_or_default());
        }
    }

    /// Sends an answer.
    ///
    /// # Errors
    /// The plugin is gone.
    pub async fn answer(&mut self, answer: &Answer) -> Result<(), FrameError> {
        let bytes = frame::encode(answer)?;
        Ok(self.stream.write_all(&bytes).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use osmia_cni::protocol::AttachmentKey;

    use super::*;

    fn request() -> Request {
        Request::Delete { key: AttachmentKey::new("c1", "eth0").unwrap(), started_ns: 7 }
    }

    #[tokio::test]
    async fn a_request_in_single_bytes_is_still_one_and_keeps_its_descriptor() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(there);
        let bytes = frame::encode(&request()).unwrap();
        let sender = tokio::spawn(async move {
            let file = std::fs::File::open("/proc/self/ns/net").unwrap();
            handover::send(&here, &bytes[..1], file.as_fd()).unwrap();
            for byte in &bytes[1..] {
                here.writable().await.unwrap();
                here.try_write(&[*byte]).unwrap();
                tokio::task::yield_now().await;
            }
            here
        });
        let (got, fd) = connection.request().await.unwrap().unwrap();
        assert_eq!(got, request());
        assert!(fd.is_some());
        drop(sender.await.unwrap());
        assert!(connection.request().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_is_no_frame_is_an_error_and_no_memory() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], &[0, 0, 0, 2, b'{', b'}'], &[0, 0, 0, 9, b'x']] {
            let (mut here, there) = UnixStream::pair().unwrap();
            here.write_all(bytes).await.unwrap();
            drop(here);
            let mut connection = Connection::new(there);
            assert!(connection.request().await.is_err(), "{bytes:?}");
        }
    }
}

//! One stream there and back, or one datagram and its digest.
//!
//! Invariant: the receiver says what came and from whom. Where it listens and where the sender sends to may differ: a stack may rewrite
//! in between.

use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use osmia_lab::{Space, random};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long what must arrive may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a stream in each direction: many windows, and thousands of packets on a wire that segments.
const STREAM: usize = 4 << 20;
/// Sends of a datagram. The kernel refuses one where it has learnt just now of a smaller MTU on the way.
const SENDS: usize = 3;

/// From where to where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a> {
    pub(crate) from: &'a Space,
    pub(crate) to: &'a Space,
    /// Where the sender sends to.
    pub(crate) destination: IpAddr,
    /// Where the receiver listens.
    pub(crate) listen: IpAddr,
}

impl<'a> Way<'a> {
    /// To an address that nobody rewrites.
    pub(crate) const fn plain(from: &'a Space, to: &'a Space, destination: IpAddr) -> Self {
        Self { from, to, destination, listen: destination }
    }

    /// Who the receiver saw, once 4 MiB came as they were sent and went back the same.
    pub(crate) fn stream(&self) -> Result<IpAddr> {
        let listener = self.to.run(|| TcpListener::bind((self.listen, 0)))?.context("listen")?;
        let port = listener.local_addr()?.port();
        thread::scope(|scope| {
            let sender = scope.spawn(|| self.send_stream(port));
            let received = receive_stream(&listener);
            let sent = sender.join().expect("the sender did not panic");
            let (peer, digest) = match received {
                Ok(received) => received,
                Err(err) => return Err(err.context(format!("the sender says {sent:?}"))),
            };
            let (wrote, returned) = sent?;
            ensure!(digest == wrote, "the stream was damaged");
            ensure!(returned == digest, "the stream was damaged on its way back");
            Ok(peer)
        })
    }

    /// The digests of what was sent and of what came back.
    fn send_stream(&self, port: u16) -> Result<(u64, u64)> {
        let target = (self.destination, port).into();
        let mut stream = self.from.run(|| TcpStream::connect_timeout(&target, PATIENCE))?.context("connect")?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let payload = bytes(STREAM);
        stream.write_all(&payload).context("send")?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::with_capacity(STREAM);
        stream.read_to_end(&mut answer).with_context(|| format!("receive, after {} bytes", answer.len()))?;
        Ok((digest(&payload), digest(&answer)))
    }

    /// Who the receiver saw, once datagrams that the sender's kernel hands on in one piece (`UDP_SEGMENT`, linux/udp.h) came one by one.
    pub(crate) fn segmented(&self) -> Result<IpAddr> {
        const SEGMENT: usize = 1_000;
        const SEGMENTS: usize = 12;
        let (sender, receiver) = self.datagram_sockets()?;
        setsockopt(&sender, UdpGsoSegment, &(SEGMENT as i32)).context("UDP_SEGMENT")?;
        let payload = bytes(SEGMENT * SEGMENTS);
        sender.send(&payload).context("send")?;
        let mut buffer = [0; 2 * SEGMENT];
        let mut seen = None;
        for (number, segment) in payload.chunks(SEGMENT).enumerate() {
            let (got, peer) = receiver.recv_from(&mut buffer).with_context(|| format!("receive segment {number}"))?;
            ensure!(&buffer[..got] == segment, "{got} bytes that are not segment {number}");
            seen = Some(peer.ip());
        }
        seen.context("no segment was sent")
    }

    /// Who the receiver saw, once one datagram with so many bytes came as it was sent and its digest is back.
    pub(crate) fn datagram(&self, length: usize) -> Result<IpAddr> {
        let (sender, receiver) = self.datagram_sockets()?;
        let payload = bytes(length);
        let mut buffer = vec![0; 1 << 16];
        let mut said = Ok(0);
        for _ in 0..SENDS {
            said = sender.send(&payload);
            let Ok((got, peer)) = receiver.recv_from(&mut buffer) else { continue };
            ensure!(buffer[..got] == payload, "{got} of {length} bytes came, or others");
            receiver.send_to(&digest(&buffer[..got]).to_be_bytes(), peer).context("answer")?;
            let mut answer = [0; 9];
            let got = sender.recv(&mut answer).context("the digest")?;
            ensure!(answer[..got] == digest(&payload).to_be_bytes(), "another digest came back");
            return Ok(peer.ip());
        }
        Err(anyhow::anyhow!("no datagram of {length} bytes came; the sender says {said:?}"))
    }

    /// The sender's, connected, and the receiver's.
    fn datagram_sockets(&self) -> Result<(UdpSocket, UdpSocket)> {
        let receiver = self.to.run(|| UdpSocket::bind((self.listen, 0)))?.context("bind the receiver")?;
        let any = if self.destination.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let sender = self.from.run(|| UdpSocket::bind::<(IpAddr, u16)>((any, 0)))?.context("bind the sender")?;
        sender.connect((self.destination, receiver.local_addr()?.port())).context("connect")?;
        receiver.set_read_timeout(Some(PATIENCE / SENDS as u32))?;
        sender.set_read_timeout(Some(PATIENCE))?;
        Ok((sender, receiver))
    }
}

/// Who sent, and the digest of what came and was sent back.
fn receive_stream(listener: &TcpListener) -> Result<(IpAddr, u64)> {
    let wait = Timespec::try_from(PATIENCE)?;
    let ready = poll(&mut [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)], Some(&wait))?;
    ensure!(ready > 0, "no connection came");
    let (mut stream, peer) = listener.accept().context("accept")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut got = Vec::with_capacity(STREAM);
    stream.read_to_end(&mut got).with_context(|| format!("receive, after {} bytes", got.len()))?;
    ensure!(got.len() == STREAM, "{} of {STREAM} bytes came", got.len());
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&got).context("answer")?;
    Ok((peer.ip(), digest(&got)))
}

fn digest(bytes: &[u8]) -> u64 {
    let mut digest = DefaultHasher::new();
    digest.write(bytes);
    digest.finish()
}

/// Bytes that no other call gives.
fn bytes(length: usize) -> Vec<u8> {
    let mut state = random() | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64 (Marsaglia 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

//! The pod's network namespace beside a message: one file descriptor by SCM_RIGHTS, attached to the frame's first byte.
//!
//! Invariant: whoever may get a `Reserve` reads the first bytes of a connection by [`receive`]; a plain read drops the descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Sends `bytes` with a descriptor; gives how many went out. The rest goes by ordinary writes.
///
/// # Errors
/// What `sendmsg(2)` says.
pub fn send(stream: impl AsFd, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<usize> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("the control buffer is too small for one descriptor"));
    }
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives up to `buffer.len()` bytes, and the descriptor if one came with them. Zero bytes: the other side closed.
///
/// A non-blocking stream gives `WouldBlock`, so it serves tokio's `try_io` as well. Descriptors beyond the first are closed.
///
/// # Errors
/// What `recvmsg(2)` says.
pub fn receive(stream: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut first = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            for fd in fds {
                first.get_or_insert(fd);
            }
        }
    }
    Ok((got.bytes, first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_arrives_with_the_first_byte() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(send(&here, b"head", file.as_fd()).unwrap(), 4);
        here.write_all(b"rest").unwrap();
        let mut buffer = [0; 2];
        let (read, fd) = receive(&there, &mut buffer).unwrap();
        assert_eq!((read, &buffer), (2, b"he"));
        let (sent, got) = (rustix::fs::fstat(&file).unwrap(), rustix::fs::fstat(fd.unwrap()).unwrap());
        assert_eq!((sent.st_dev, sent.st_ino), (got.st_dev, got.st_ino));
        assert!(receive(&there, &mut buffer).unwrap().1.is_none());
    }

    #[test]
    fn a_closed_stream_gives_no_bytes() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(here);
        let (read, fd) = receive(&there, &mut [0; 8]).unwrap();
        assert!(read == 0 && fd.is_none());
    }
}

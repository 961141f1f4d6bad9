//! Waits until a descriptor can be read. The only `unsafe` of this package.
#![expect(
    unsafe_code,
    reason = "tokio asks its caller to promise that a descriptor stays the same; here the type does"
)]

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use tokio::io::{Interest, unix::AsyncFd};

/// A non-blocking descriptor that tokio knows.
#[derive(Debug)]
pub struct Readable(AsyncFd<OwnedFd>);

impl Readable {
    /// Registers the descriptor.
    ///
    /// # Errors
    /// epoll refuses it.
    ///
    /// # Panics
    /// Outside of a runtime, as all of tokio's descriptors.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an OwnedFd is open and one and the same until it is dropped; `Readable` never gives it out but borrowed, so it lives
        // inside the AsyncFd until that is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Waits for something to read. The caller then reads until `WouldBlock`. Cancel-safe.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn wait(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

impl AsFd for Readable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

/// Gives free memory back to the kernel. Loading the programs takes several MB that nobody needs again, and glibc would keep them.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time from any thread; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

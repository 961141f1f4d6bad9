//! Waits until a descriptor can be read, and tells the allocator what to give back. The only `unsafe` of this package.
#![expect(
    unsafe_code,
    reason = "tokio asks its caller to promise that a descriptor stays the same; here the type does. The C library's allocator is asked by C"
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

/// What is as large as this is taken from the kernel by itself, and given back as soon as it is free.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 256 << 10;
/// So much free memory at the end of a heap is kept.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 1 << 20;

/// Lets no large piece of memory that is free stay with the allocator: glibc raises both limits, up to 64 MB, the first time that something
/// larger is freed, as a list of all pods is.
pub fn bound_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) may be called at any time; it sets a number, and refuses what it does not know.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}

/// Gives all pages that are free back to the kernel, also those between others: glibc would keep them.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time from any thread; it touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

//! The pod's network namespace.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread;

use rustix::fs::{Mode, OFlags, fstat, fstatfs, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Magic number of the file system that namespaces are files of (`linux/magic.h`, NSFS_MAGIC).
const NSFS: i64 = 0x6e73_6673;

/// A network namespace by its open file: stays what it is when the path comes to name another.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

/// Why a path is no namespace to work in.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// It cannot be opened.
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    /// It is some other file.
    #[error("is no namespace")]
    Other,
    /// It is the plugin's own.
    #[error("is the namespace of the runtime itself")]
    Own,
}

impl Namespace {
    /// Opens the namespace at a path that must not lead to the caller's own (E18).
    ///
    /// # Errors
    /// See [`NamespaceError`].
    pub fn open(path: &str) -> Result<Self, NamespaceError> {
        let failed = |e: rustix::io::Errno| NamespaceError::Open(e.into());
        let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(failed)?;
        if fstatfs(&fd).map_err(failed)?.f_type != NSFS {
            return Err(NamespaceError::Other);
        }
        let own = open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        let (own, other) = (fstat(&own).map_err(failed)?, fstat(&fd).map_err(failed)?);
        if (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino) {
            return Err(NamespaceError::Own);
        }
        Ok(Self { fd })
    }

    /// Moves the calling thread into it, for good: a way back could fail. Nothing but the network changes for it: files, and sockets that
    /// are reached by a path, stay where they are. Sockets that it has open do too.
    ///
    /// # Errors
    /// What the kernel says; EINVAL for another kind of namespace.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Lets a link of it have IPv6 addresses: some runtimes create namespaces with IPv6 disabled.
    ///
    /// # Errors
    /// The setting cannot be written.
    pub fn enable_ipv6(&self, ifname: &str) -> io::Result<()> {
        let path = Path::new("/proc/sys/net/ipv6/conf").join(ifname).join("disable_ipv6");
        // In a thread that ends with it: the caller stays where it is.
        thread::scope(|scope| {
            let inside = thread::Builder::new().spawn_scoped(scope, || {
                self.enter()?;
                fs::write(path, "0")
            })?;
            inside.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
        })
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether the kernel has IPv6 at all; booted with `ipv6.disable=1` it has not.
#[must_use]
pub fn kernel_has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

//! Devices by index, where they are this network namespace's.
//!
//! Invariant: a name is given only where the pins belong to the caller's network namespace: an index alone means another device in
//! another one, and a wrong name is worse than none.

use std::{
    cell::RefCell,
    collections::HashMap,
    net::{Ipv4Addr, Ipv6Addr, UdpSocket},
    os::fd::OwnedFd,
    rc::Rc,
};

use osmia_ebpf::layout::Config;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// Host-side end of the door.
const DOOR_HOST: &str = "osmia0";

/// Names of devices, asked from the kernel once each.
#[derive(Debug, Default)]
pub struct Devices {
    socket: Option<OwnedFd>,
    names: RefCell<HashMap<u32, Option<Rc<str>>>>,
}

impl Devices {
    /// The devices that the rows of a node speak of. They have names if its door and its address are in the caller's network namespace.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let any = Self { socket: open(), ..Self::default() };
        let door = config.door_host != 0 && any.name(config.door_host).as_deref() == Some(DOOR_HOST);
        if door && is_here(config) { any } else { Self::default() }
    }

    /// Whether names are known at all.
    #[must_use]
    pub fn are_here(&self) -> bool {
        self.socket.is_some()
    }

    /// The name of a device; `None` for one that is gone or elsewhere.
    #[must_use]
    pub fn name(&self, ifindex: u32) -> Option<Rc<str>> {
        let socket = self.socket.as_ref()?;
        let ask = || netdevice::index_to_name(socket, ifindex).ok().map(Rc::from);
        self.names.borrow_mut().entry(ifindex).or_insert_with(ask).clone()
    }

    /// The index of a device by name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<u32> {
        netdevice::name_to_index(self.socket.as_ref()?, name).ok()
    }
}

fn open() -> Option<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()
}

/// Whether the node's address is local here: it is one node's only, and only a local one can be bound.
fn is_here(config: &Config) -> bool {
    let v4 = (config.node4 != [0; 4]).then(|| UdpSocket::bind((Ipv4Addr::from(config.node4), 0)));
    let v6 = (config.node6 != [0; 16]).then(|| UdpSocket::bind((Ipv6Addr::from(config.node6), 0)));
    match (v4, v6) {
        (None, None) => true,
        (v4, v6) => v4.into_iter().chain(v6).any(|bound| bound.is_ok()),
    }
}

//! The pods of the demo. One that could not be added fails the rows that need it, and no others.

use osmia_lab::{Encap, Lab, Options, Pod, Subnet};

/// Index of the node that most rows look from.
pub(crate) const HOME: usize = 0;
/// Index of the node in the same subnet.
pub(crate) const NEAR: usize = 1;
/// Index of the node that [`HOME`] is never told of; across the router except with native, where the router would have to know pods.
pub(crate) const STRANGER: usize = 2;

/// A pod, or why there is none.
pub(crate) type Guest = Result<Pod, String>;

/// The pods.
#[derive(Debug)]
pub(crate) struct Guests {
    /// On [`HOME`].
    pub(crate) client: Guest,
    /// On [`HOME`].
    pub(crate) server: Guest,
    /// On [`HOME`]; its rows are withheld.
    pub(crate) unlisted: Guest,
    /// On [`NEAR`].
    pub(crate) remote: Guest,
    /// On [`STRANGER`].
    pub(crate) stranger: Guest,
}

/// The nodes, without agents.
pub(crate) fn options(encap: Encap) -> Options {
    let third = if encap == Encap::Native { Subnet::Near } else { Subnet::Far };
    Options {
        encap,
        nodes: vec![Subnet::Near, Subnet::Near, third],
        strangers: vec![(HOME, STRANGER)],
        ..Options::default()
    }
}

impl Guests {
    /// Adds them, one after the other on each node.
    pub(crate) fn invite(lab: &Lab) -> Self {
        let add = |node, name| lab.add_pod(node, name).map_err(|err| format!("{err:#}"));
        std::thread::scope(|scope| {
            let near = scope.spawn(|| add(NEAR, "remote"));
            let far = scope.spawn(|| add(STRANGER, "stranger"));
            let panicked = |_| Err("adding it panicked".to_owned());
            Self {
                client: add(HOME, "client"),
                server: add(HOME, "server"),
                unlisted: add(HOME, "unlisted"),
                remote: near.join().unwrap_or_else(panicked),
                stranger: far.join().unwrap_or_else(panicked),
            }
        })
    }
}

impl Guests {
    /// Those that could be added.
    pub(crate) fn present(&self) -> impl Iterator<Item = &Pod> {
        [&self.client, &self.server, &self.unlisted, &self.remote, &self.stranger].into_iter().flatten()
    }
}

/// The pod, or a copy of the reason.
pub(crate) fn need(guest: &Guest) -> Result<&Pod, String> {
    guest.as_ref().map_err(Clone::clone)
}

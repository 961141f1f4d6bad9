//! Removes a veth by the name of its host's end; the pod's end goes with it. No agent and no namespace is needed.

use rustix::io::Errno;

use super::message;
use super::netlink::Ask;
use super::{Netlink, NetlinkError};

/// Removes it; says whether there was one.
///
/// # Errors
/// The kernel refused; a link that is gone already is no error.
pub fn by_host_name(host: &mut Netlink, name: &str) -> Result<bool, NetlinkError> {
    match host.batch(vec![Ask::new("deleting the host's end of the veth", message::delete_link(name))]) {
        Ok(_) => Ok(true),
        Err(error) if error.errno() == Some(Errno::NODEV) => Ok(false),
        Err(error) => Err(error),
    }
}

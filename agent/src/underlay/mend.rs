//! Mends what is ours. A part that cannot be mended (a port that is taken, a module that is missing) does not keep the others from it.

use std::net::{IpAddr, Ipv6Addr};

use anyhow::{Context as _, Error, Result};
use rtnetlink::Handle;
use tracing::info;

use super::{Wanted, door, picture::Picture, routes, sysctl, tunnel, uplinks};
use crate::{
    compile::pod_mtu,
    model::{Underlay, UplinkState},
};

/// What came of it.
#[derive(Default)]
pub(super) struct Mended {
    /// Something was changed: the picture is old.
    pub(super) changed: bool,
    /// What failed.
    pub(super) errors: Vec<Error>,
}

impl Mended {
    /// Takes in what one part came to.
    pub(super) fn note(&mut self, part: Result<bool>) {
        match part {
            Ok(changed) => self.changed |= changed,
            Err(error) => self.errors.push(error),
        }
    }
}

/// Everything.
pub(super) async fn all(handle: &Handle, picture: &Picture, underlay: &Underlay, wanted: &Wanted) -> Mended {
    let mut mended = Mended::default();
    let mtu = pod_mtu(wanted.this.as_ref(), underlay, &wanted.settings);
    mended.note(door::ensure(handle, picture, mtu).await);
    let port = wanted.tunnel().then_some(wanted.settings.tunnel_port);
    mended.note(tunnel::ensure(handle, picture, port, mtu).await);
    if picture.ipv6 && wanted.pods6 {
        for (ifindex, uplink) in &underlay.uplinks {
            mended.note(link_local(handle, picture, *ifindex, uplink).await);
        }
    }
    if picture.devices.get(&underlay.door_host).is_some_and(|door| door.up) {
        routes::carry_out(handle, routes::plan(picture, &wanted.routes), underlay.door_host, &mut mended).await;
    }
    mended.note(forward(picture, wanted));
    mended
}

/// IPv6 leaves an uplink only where it has a link-local address: without one nothing solicits for a pod's packet (tried).
async fn link_local(handle: &Handle, picture: &Picture, ifindex: u32, uplink: &UplinkState) -> Result<bool> {
    let has = picture
        .addresses
        .iter()
        .any(|held| held.ifindex == ifindex && held.net.addr().is_ipv6() && uplinks::is_link_local(held.net.addr()));
    let up = picture.devices.get(&ifindex).is_some_and(|device| device.up);
    if has || !up || !sysctl::allows_ipv6(&uplink.name) {
        return Ok(false);
    }
    let address = IpAddr::V6(modified_eui64(uplink.mac));
    let add = handle.address().add(ifindex, address, 64).execute();
    add.await.with_context(|| format!("adding {address} to {}", uplink.name))?;
    info!(uplink = uplink.name, %address, "IPv6 link-local address added, it had none");
    Ok(true)
}

fn forward(picture: &Picture, wanted: &Wanted) -> Result<bool> {
    let services = &wanted.settings.service_cidrs;
    let v4 = services.iter().any(|range| range.addr().is_ipv4());
    let v6 = picture.ipv6 && services.iter().any(|range| range.addr().is_ipv6());
    sysctl::forward(v4, v6).context("letting the stack forward")?;
    Ok(false)
}

/// The address that the kernel itself would make (RFC 4291, appendix A).
fn modified_eui64([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_is_the_kernels() {
        assert_eq!(modified_eui64([0x02, 0, 0, 0xaa, 0xbb, 0xcc]).to_string(), "fe80::ff:feaa:bbcc");
    }
}

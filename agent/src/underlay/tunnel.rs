//! The collect-metadata VXLAN device: it keeps the port open so that the receiver's GRO merges, and takes what our programs cannot.

use anyhow::{Context as _, Result};
use netlink_packet_route::link::{InfoKind, InfoVxlan};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVxlan};
use tracing::info;

use super::{
    TUNNEL, door,
    picture::{Device, Picture},
};
use crate::compile::INNER_DESTINATION;

/// Makes, mends or removes the device. True if something was changed, so that the picture is old.
pub(super) async fn ensure(handle: &Handle, picture: &Picture, port: Option<u16>, mtu: u16) -> Result<bool> {
    let mtu = u32::from(mtu);
    match (picture.find(TUNNEL), port) {
        (None, None) => Ok(false),
        (None, Some(port)) => {
            create(handle, port, mtu).await.with_context(|| format!("creating {TUNNEL} on UDP port {port}"))?;
            info!(port, "{TUNNEL} created");
            Ok(true)
        }
        (Some((ifindex, device)), Some(port)) if fits(device, port) => {
            mend(handle, picture, ifindex, device, mtu).await
        }
        (Some((ifindex, _)), _) => {
            // Not wanted, or with properties that cannot be changed.
            handle.link().del(ifindex).execute().await.with_context(|| format!("removing {TUNNEL}"))?;
            info!("{TUNNEL} removed");
            Ok(true)
        }
    }
}

fn fits(device: &Device, port: u16) -> bool {
    let has = |wanted: InfoVxlan| device.vxlan.contains(&wanted);
    device.kind == Some(InfoKind::Vxlan)
        && device.mac == INNER_DESTINATION
        && has(InfoVxlan::CollectMetadata(true))
        && has(InfoVxlan::Port(port))
        && has(InfoVxlan::UDPZeroCsumRX(true))
}

async fn create(handle: &Handle, port: u16, mtu: u32) -> Result<()> {
    // Inner packets are addressed to this MAC, and never come from it: the kernel drops what comes from the device's own.
    let message = LinkMessageBuilder::<LinkVxlan>::new(TUNNEL)
        .collect_metadata(true)
        .port(port)
        .append_info_data(InfoVxlan::UDPZeroCsumRX(true))
        .address(INNER_DESTINATION.to_vec())
        .mtu(mtu)
        .build();
    Ok(handle.link().add(message).execute().await?)
}

async fn mend(handle: &Handle, picture: &Picture, ifindex: u32, device: &Device, mtu: u32) -> Result<bool> {
    let silence = picture.ipv6 && !device.silent6;
    if silence {
        door::silence(handle, ifindex).await?;
    }
    let wrong = device.mtu != mtu || !device.up;
    if wrong {
        let message = LinkUnspec::new_with_index(ifindex).mtu(mtu).up().build();
        handle.link().set(message).execute().await.with_context(|| format!("setting {TUNNEL} up with MTU {mtu}"))?;
    }
    Ok(silence || wrong)
}

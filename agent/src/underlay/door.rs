//! The door: the veth pair between the node's own stack and the pod network.
//!
//! `osmia0` has the gateway's MAC, no ARP and no address; both ends have the pods' MTU (with a larger one the node's UDP to a remote pod
//! vanishes, tried) and no IPv6 addresses of the kernel's making.

use anyhow::{Context as _, Result};
use netlink_packet_route::link::{AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoVeth, LinkAttribute};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth};
use tracing::info;

use super::{
    DOOR_HOST, DOOR_PODS,
    picture::{Device, Picture},
    sysctl,
};
use crate::compile::GATEWAY_MAC;

/// Makes and mends the pair. True if something was changed, so that the picture is old.
pub(super) async fn ensure(handle: &Handle, picture: &Picture, mtu: u16) -> Result<bool> {
    let mtu = u32::from(mtu);
    let (host, pods) = match (picture.find(DOOR_HOST), picture.find(DOOR_PODS)) {
        (Some(host), Some(pods)) => (host, pods),
        // Half a door is some other device under our name, or one of ours whose peer was moved away.
        (Some((ifindex, _)), None) | (None, Some((ifindex, _))) => {
            handle.link().del(ifindex).execute().await.context("removing half of the door")?;
            return Ok(true);
        }
        (None, None) => {
            create(handle, mtu).await?;
            info!("{DOOR_HOST} and {DOOR_PODS} created");
            return Ok(true);
        }
    };
    // First the pods' end: with osmia0 up, packets go there.
    let pods = mend(handle, picture, pods, mtu, None).await.with_context(|| format!("mending {DOOR_PODS}"))?;
    let host =
        mend(handle, picture, host, mtu, Some(GATEWAY_MAC)).await.with_context(|| format!("mending {DOOR_HOST}"))?;
    sysctl::answer_for(DOOR_HOST, picture.ipv6).with_context(|| format!("letting {DOOR_HOST} ask for routes"))?;
    Ok(pods || host)
}

async fn create(handle: &Handle, mtu: u32) -> Result<()> {
    let peer = LinkUnspec::new_with_name(DOOR_PODS).mtu(mtu).build();
    let pair = LinkMessageBuilder::<LinkVeth>::new(DOOR_HOST, DOOR_PODS)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .mtu(mtu)
        .address(GATEWAY_MAC.to_vec())
        .arp(false)
        .build();
    handle.link().add(pair).execute().await.context("creating the door")
}

/// `host`: this is `osmia0`, with this MAC and without ARP.
async fn mend(
    handle: &Handle,
    picture: &Picture,
    (ifindex, device): (u32, &Device),
    mtu: u32,
    host: Option<[u8; 6]>,
) -> Result<bool> {
    let mut changed = false;
    if picture.ipv6 && !device.silent6 {
        silence(handle, ifindex).await?;
        changed = true;
    }
    let mut builder = LinkUnspec::new_with_index(ifindex);
    let mut wrong = false;
    if device.mtu != mtu {
        builder = builder.mtu(mtu);
        wrong = true;
    }
    if let Some(mac) = host {
        if device.mac != mac {
            builder = builder.address(mac.to_vec());
            wrong = true;
        }
        if device.arp {
            builder = builder.arp(false);
            wrong = true;
        }
    }
    if !device.up {
        builder = builder.up();
        wrong = true;
    }
    if wrong {
        handle.link().set(builder.build()).execute().await.context("setting MTU, MAC and state")?;
        info!(device = device.name, mtu, "set");
    }
    Ok(changed || wrong)
}

/// No IPv6 addresses of the kernel's making. Before the device goes up, or it has one already.
pub(super) async fn silence(handle: &Handle, ifindex: u32) -> Result<()> {
    let inet6 = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    let message =
        LinkUnspec::new_with_index(ifindex).append_extra_attribute(LinkAttribute::AfSpecUnspec(vec![inet6])).build();
    handle.link().set(message).execute().await.context("setting addrgenmode none")
}

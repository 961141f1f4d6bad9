//! Looks, mends, tells; again at each event.

use std::{
    collections::BTreeSet,
    future::Future,
    net::{IpAddr, Ipv6Addr},
    pin::Pin,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use futures_util::{Stream, StreamExt as _};
use rtnetlink::{Handle, new_connection};
use tokio::{sync::watch, time};
use tracing::{info, warn};

use super::{
    DOOR_HOST, DOOR_PODS, TUNNEL, Wanted, door, events,
    picture::Picture,
    routes, sysctl, tunnel,
    uplinks::{self, Choice},
    ways,
};
use crate::{
    compile::pod_mtu,
    model::{Underlay, UplinkState},
};

/// Events within this time are one look: a device coming up sends a dozen.
const SETTLE: Duration = Duration::from_millis(20);
/// After a failure, so that a passing one mends itself.
const RETRY: Duration = Duration::from_secs(2);
/// A look without any event, against what nobody told.
const REST: Duration = Duration::from_secs(60);
/// Looks within one round: each change we make is seen in the next.
const ROUNDS: usize = 8;

/// The running service; ends with the process or when nobody listens any more.
pub type Service = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts to follow the network of the calling thread's namespace: sockets stay where they are opened.
///
/// The receiver holds `None` until the first look that succeeds. The service must be polled on the same runtime.
///
/// # Errors
/// No netlink socket.
pub fn start(wanted: watch::Receiver<Wanted>) -> Result<(watch::Receiver<Option<Underlay>>, Service)> {
    let (connection, handle, _) = new_connection().context("opening a netlink socket")?;
    tokio::spawn(connection);
    // Before the first look, so that nothing happens unseen in between.
    let events = events::subscribe()?;
    let (tell, told) = watch::channel(None);
    let keeper = Keeper { handle, wanted, tell, said: BTreeSet::new() };
    Ok((told, Box::pin(keeper.run(events))))
}

struct Keeper {
    handle: Handle,
    wanted: watch::Receiver<Wanted>,
    tell: watch::Sender<Option<Underlay>>,
    /// What was said already, so that it is said once.
    said: BTreeSet<String>,
}

impl Keeper {
    async fn run(mut self, mut events: impl Stream<Item = ()> + Unpin + Send) {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let pause = match self.look(&wanted).await {
                Ok(()) => REST,
                Err(error) => {
                    warn!("underlay: {error:#}; tried again in {} s", RETRY.as_secs());
                    RETRY
                }
            };
            tokio::select! {
                changed = self.wanted.changed() => if changed.is_err() { return },
                event = events.next() => if event.is_none() {
                    warn!("underlay: the netlink socket is closed");
                    return;
                },
                () = time::sleep(pause) => {}
                () = self.tell.closed() => return,
            }
            // Gather what belongs together; a timeout ends it, also under a constant stream.
            let gather = async { while events.next().await.is_some() {} };
            let _ = time::timeout(SETTLE, gather).await;
        }
    }

    /// Looks and mends until there is nothing to mend, then tells.
    async fn look(&mut self, wanted: &Wanted) -> Result<()> {
        for _ in 0..ROUNDS {
            let picture = Picture::take(&self.handle, DOOR_HOST).await?;
            let choice = uplinks::choose(&picture, wanted.own(), &wanted.settings.uplinks);
            self.say(&choice);
            let mut underlay = underlay(&picture, choice);
            let mended = self.mend(&picture, &underlay, wanted).await;
            if !matches!(mended, Ok(true)) {
                // What cannot be mended must not hide what is there.
                underlay.ways = ways::find(&self.handle, &picture, &wanted.peers).await?;
                self.tell.send_if_modified(|told| {
                    let new = told.as_ref() != Some(&underlay);
                    if new {
                        *told = Some(underlay);
                    }
                    new
                });
                return mended.map(drop);
            }
        }
        bail!("our devices or routes change as often as they are mended: something else claims them");
    }

    /// Mends what is ours; true if the picture is old now.
    async fn mend(&self, picture: &Picture, underlay: &Underlay, wanted: &Wanted) -> Result<bool> {
        let mtu = pod_mtu(wanted.this.as_ref(), underlay, &wanted.settings);
        let mut changed = door::ensure(&self.handle, picture, mtu).await?;
        let port = wanted.tunnel().then_some(wanted.settings.tunnel_port);
        changed |= tunnel::ensure(&self.handle, picture, port, mtu).await?;
        if picture.ipv6 && wanted.pods6 {
            changed |= self.link_locals(picture, underlay).await?;
        }
        if underlay.door_host != 0 && picture.devices.get(&underlay.door_host).is_some_and(|door| door.up) {
            let plan = routes::plan(picture, &wanted.routes);
            changed |= routes::carry_out(&self.handle, plan, underlay.door_host).await?;
        }
        let services = &wanted.settings.service_cidrs;
        let v6 = picture.ipv6 && services.iter().any(|range| range.addr().is_ipv6());
        sysctl::forward(services.iter().any(|range| range.addr().is_ipv4()), v6)
            .context("letting the stack forward")?;
        Ok(changed)
    }

    /// IPv6 leaves an uplink only where it has a link-local address: without one nothing solicits for a pod's packet (tried).
    async fn link_locals(&self, picture: &Picture, underlay: &Underlay) -> Result<bool> {
        let mut changed = false;
        for (&ifindex, uplink) in &underlay.uplinks {
            let has = picture.addresses.iter().any(|address| {
                address.ifindex == ifindex && address.net.addr().is_ipv6() && uplinks::is_link_local(address.net.addr())
            });
            let up = picture.devices.get(&ifindex).is_some_and(|device| device.up);
            if has || !up || !sysctl::allows_ipv6(&uplink.name) {
                continue;
            }
            let address = IpAddr::V6(link_local(uplink));
            self.handle
                .address()
                .add(ifindex, address, 64)
                .execute()
                .await
                .with_context(|| format!("adding {address} to {}", uplink.name))?;
            info!(uplink = uplink.name, %address, "IPv6 link-local address added, it had none");
            changed = true;
        }
        Ok(changed)
    }

    fn say(&mut self, choice: &Choice) {
        for line in choice.refused.difference(&self.said) {
            warn!("underlay: {line}");
        }
        self.said.clone_from(&choice.refused);
    }
}

fn underlay(picture: &Picture, choice: Choice) -> Underlay {
    let ifindex = |name: &str| picture.find(name).map_or(0, |(ifindex, _)| ifindex);
    Underlay {
        local_addresses: uplinks::local_addresses(picture),
        uplinks: choice.uplinks,
        ways: Default::default(),
        door_host: ifindex(DOOR_HOST),
        door_pods: ifindex(DOOR_PODS),
        tunnel_dev: ifindex(TUNNEL),
        ipv6: picture.ipv6,
    }
}

/// The address that the kernel itself would make (RFC 4291, appendix A: modified EUI-64).
fn link_local(uplink: &UplinkState) -> Ipv6Addr {
    let [a, b, c, d, e, f] = uplink.mac;
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

//! Looks, mends, tells; again at each event.

use std::{collections::BTreeSet, future::Future, pin::Pin, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{Stream, StreamExt as _};
use rtnetlink::{Handle, new_connection};
use tokio::{sync::watch, time};
use tracing::warn;

use super::{
    DOOR_HOST, DOOR_PODS, TUNNEL, Wanted, events, mend,
    picture::Picture,
    uplinks::{self, Choice},
    ways,
};
use crate::model::{Exit, Underlay};

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
            let mended = mend::all(&self.handle, &picture, &underlay, wanted).await;
            if mended.changed {
                continue;
            }
            // What cannot be mended must not hide what is there.
            underlay.ways = ways::find(&self.handle, &picture, &wanted.peers).await?;
            underlay.asked.clone_from(&wanted.peers);
            self.tell.send_if_modified(|told| {
                let new = told.as_ref() != Some(&underlay);
                if new {
                    *told = Some(underlay);
                }
                new
            });
            let errors: Vec<String> = mended.errors.iter().map(|error| format!("{error:#}")).collect();
            ensure!(errors.is_empty(), "{}", errors.join("; "));
            return Ok(());
        }
        bail!("our devices or routes change as often as they are mended: something else claims them");
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
        exits: exits(picture, &choice),
        local_addresses: uplinks::local_addresses(picture),
        uplinks: choice.uplinks,
        ways: Default::default(),
        asked: BTreeSet::new(),
        door_host: ifindex(DOOR_HOST),
        door_pods: ifindex(DOOR_PODS),
        // While it is down its port is somebody else's.
        tunnel_dev: picture.find(TUNNEL).filter(|(_, device)| device.up).map_or(0, |(ifindex, _)| ifindex),
        ipv6: picture.ipv6,
    }
}

/// Routes over uplinks and those that lead nowhere. What is over other devices comes and goes with other things of the node.
fn exits(picture: &Picture, choice: &Choice) -> Vec<Exit> {
    let counts =
        |exit: &&Exit| exit.hops.is_empty() || exit.hops.iter().any(|(over, _)| choice.uplinks.contains_key(over));
    let mut exits: Vec<Exit> = picture.exits.iter().filter(counts).cloned().collect();
    exits.sort();
    exits
}

//! What the capture on the LAN says: plain packets between pods, or tunnel packets between their nodes.

use std::collections::BTreeMap;

use osmia_lab::{Encap, Lab, Pair, Pod, Seen};

use crate::guests::{Guests, HOME, NEAR, STRANGER, need};
use crate::report::{Outcome, Report};
use crate::rows;

type Frames = BTreeMap<Seen, usize>;

/// Fills the rows about the wire: from what was seen while everything had to arrive, and while rows were withheld.
pub(crate) fn judge(
    lab: &Lab,
    guests: &Guests,
    frames: &Result<Frames, String>,
    withheld: &Result<Frames, String>,
    report: &mut Report,
) {
    let encap = lab.options().encap;
    let twin = withheld.as_ref().map_err(Clone::clone).and_then(|frames| stays_off(guests, frames));
    let judge_pair = |a: (&Result<Pod, String>, usize), b: (&Result<Pod, String>, usize), tunnel: bool| {
        let frames = frames.as_ref().map_err(Clone::clone)?;
        let mut notes = Vec::new();
        for v6 in [false, true] {
            let pods = (address(need(a.0)?, v6)?, address(need(b.0)?, v6)?);
            // The tunnel's family is that of the nodes' first InternalIP.
            let nodes = (lab.nodes[a.1].address(false), lab.nodes[b.1].address(false));
            notes.push(both_ways(frames, pods, nodes, tunnel)?);
        }
        Ok(notes.join(", "))
    };
    let near = judge_pair((&guests.client, HOME), (&guests.remote, NEAR), encap == Encap::Vxlan);
    report.put(rows::wire(encap, false), near.and_then(|note| twin.clone().map(|()| note)));
    if encap == Encap::Auto {
        let far = judge_pair((&guests.remote, NEAR), (&guests.stranger, STRANGER), true);
        report.put(rows::wire(encap, true), far.and_then(|note| twin.map(|()| note)));
    }
}

/// The twin: of what a pod sends to one of the node that its own is never told of, nothing is on the wire, as it is or in a tunnel.
fn stays_off(guests: &Guests, frames: &Frames) -> Result<(), String> {
    for v6 in [false, true] {
        let pods = (address(need(&guests.client)?, v6)?, address(need(&guests.stranger)?, v6)?);
        let of_them = |seen: &Seen| seen.outer == pods || seen.inner == Some(pods);
        let count: usize = frames.iter().filter(|(seen, _)| of_them(seen)).map(|(_, count)| count).sum();
        if count > 0 {
            return Err(format!(
                "its twin is on the wire too, without the agent's row: {count} frames {} to {}",
                pods.0, pods.1
            ));
        }
    }
    Ok(())
}

fn address(pod: &Pod, v6: bool) -> Result<std::net::IpAddr, String> {
    pod.address(v6).map_err(|err| format!("{err:#}"))
}

fn both_ways(frames: &Frames, pods: Pair, nodes: Pair, tunnel: bool) -> Outcome {
    let back = |pair: Pair| (pair.1, pair.0);
    let mut total = (0, 0);
    for (pods, nodes) in [(pods, nodes), (back(pods), back(nodes))] {
        let count = |wanted: &dyn Fn(&Seen) -> bool| -> usize {
            frames.iter().filter(|(seen, _)| wanted(seen)).map(|(_, count)| count).sum()
        };
        let plain = count(&|seen| seen.outer == pods);
        let inside = count(&|seen| seen.inner == Some(pods));
        let between_nodes = count(&|seen| seen.inner == Some(pods) && seen.outer == nodes);
        let (right, wrong) = if tunnel { (between_nodes, plain) } else { (plain, inside) };
        if right == 0 || wrong > 0 {
            let kind = if tunnel { "in VXLAN between the nodes" } else { "as they are" };
            return Err(format!("{} to {}: {right} frames {kind}, {wrong} the other way", pods.0, pods.1));
        }
        total = if total == (0, 0) { (right, 0) } else { (total.0, right) };
    }
    let kind = if tunnel { "VXLAN" } else { "plain" };
    Ok(format!("{}+{} frames {kind}", total.0, total.1))
}

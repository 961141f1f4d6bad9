//! Each relation as probes: what must arrive, and the twin that must not.

use std::net::IpAddr;

use osmia_lab::{Encap, Lab, OUTSIDE_V4, OUTSIDE_V6, Pod, Space};

use crate::guests::{Guests, HOME, NEAR, STRANGER, need};
use crate::rows::Relation;

/// From where to where, and as whom the destination must see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg<'a> {
    pub(crate) from: &'a Space,
    pub(crate) to: &'a Space,
    pub(crate) destination: IpAddr,
    pub(crate) peer: IpAddr,
}

/// The legs of a relation that must arrive.
pub(crate) fn legs<'a>(lab: &'a Lab, guests: &'a Guests, relation: Relation, v6: bool) -> Result<Vec<Leg<'a>>, String> {
    let home = lab.nodes[HOME].address(v6);
    let client = || need(&guests.client);
    // Across subnets as well, where there is a way: with auto that is the other one.
    let across = lab.options().encap != Encap::Native;
    let remote = || need(&guests.remote);
    let mut legs = match relation {
        Relation::PodPodLocal => vec![between(client()?, need(&guests.server)?, v6)?],
        Relation::PodPodRemote => vec![between(client()?, remote()?, v6)?],
        Relation::PodOwnNode => vec![to_node(lab, client()?, HOME, v6)?],
        Relation::OwnNodePod => vec![from_node(lab, HOME, client()?, v6)?],
        Relation::PodOtherNode => vec![to_node(lab, client()?, NEAR, v6)?],
        Relation::OtherNodePod => vec![from_node(lab, NEAR, client()?, v6)?],
        Relation::PodOutside => vec![to_outside(lab, client()?, home, v6)],
    };
    match relation {
        Relation::PodPodRemote if across => {
            let stranger = need(&guests.stranger)?;
            legs.extend([between(remote()?, stranger, v6)?, between(stranger, remote()?, v6)?]);
        }
        Relation::PodOtherNode if across => legs.push(to_node(lab, remote()?, STRANGER, v6)?),
        Relation::OtherNodePod if across => legs.push(from_node(lab, STRANGER, remote()?, v6)?),
        _ => {}
    }
    Ok(legs)
}

/// The leg that must not arrive as from its peer: the agent of [`HOME`] has no row for one end of it.
pub(crate) fn twin<'a>(lab: &'a Lab, guests: &'a Guests, relation: Relation, v6: bool) -> Result<Leg<'a>, String> {
    let client = || need(&guests.client);
    let unlisted = || need(&guests.unlisted);
    match relation {
        Relation::PodPodLocal => between(client()?, unlisted()?, v6),
        Relation::PodPodRemote => between(client()?, need(&guests.stranger)?, v6),
        Relation::PodOwnNode => to_node(lab, unlisted()?, HOME, v6),
        Relation::OwnNodePod => from_node(lab, HOME, unlisted()?, v6),
        Relation::PodOtherNode => to_node(lab, client()?, STRANGER, v6),
        Relation::OtherNodePod => from_node(lab, HOME, need(&guests.stranger)?, v6),
        Relation::PodOutside => Ok(to_outside(lab, unlisted()?, lab.nodes[HOME].address(v6), v6)),
    }
}

fn address(pod: &Pod, v6: bool) -> Result<IpAddr, String> {
    pod.address(v6).map_err(|err| format!("{err:#}"))
}

fn between<'a>(from: &'a Pod, to: &'a Pod, v6: bool) -> Result<Leg<'a>, String> {
    Ok(Leg { from: &from.space, to: &to.space, destination: address(to, v6)?, peer: address(from, v6)? })
}

fn to_node<'a>(lab: &'a Lab, from: &'a Pod, node: usize, v6: bool) -> Result<Leg<'a>, String> {
    let node = &lab.nodes[node];
    Ok(Leg { from: &from.space, to: &node.space, destination: node.address(v6), peer: address(from, v6)? })
}

fn from_node<'a>(lab: &'a Lab, node: usize, to: &'a Pod, v6: bool) -> Result<Leg<'a>, String> {
    let node = &lab.nodes[node];
    Ok(Leg { from: &node.space, to: &to.space, destination: address(to, v6)?, peer: node.address(v6) })
}

fn to_outside<'a>(lab: &'a Lab, from: &'a Pod, masqueraded: IpAddr, v6: bool) -> Leg<'a> {
    let destination = if v6 { OUTSIDE_V6.into() } else { OUTSIDE_V4.into() };
    Leg { from: &from.space, to: &lab.lan.outside, destination, peer: masqueraded }
}

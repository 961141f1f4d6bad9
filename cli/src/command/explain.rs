//! `osmia explain`: may a packet pass, and which rule of which object says so.
//!
//! The verdict comes from the maps by the programs' own lookup ([`osmia_maps::judge`]), its names from the catalogue.

mod ends;
mod miss;
mod side;

use clap::Args;
use osmia_maps::{
    Pins,
    catalogue::{CrowdedOut, Direction},
    decode::{Cell, Context, Record, ip, protocol, socket_text},
    judge::{Answer, Judge, Packet, Place, Side},
    layout::{Addr, endpoint::E_READY, policy::OPEN},
};

use self::{
    ends::{End, Traffic},
    side::{Of, Told},
};
use super::{
    endpoint,
    names::{Names, texts},
    policy::{in_force, say_stale},
};
use crate::{
    arguments::Common,
    failure::Failure,
    render::{Document, List, Page},
};

/// Exit code of a denied packet.
const DENIED: u8 = 5;
/// Exit code of a packet that other nodes judge.
const NOT_JUDGED: u8 = 6;
/// Rows may go while they are read; their names then are gone as well.
const TRIES: usize = 3;

pub(super) const EXAMPLES: &str = "\
Examples:
  osmia explain 10.1.0.5 10.1.0.6 80/tcp              two pods by address
  osmia explain shop/web-0 shop/db-0 5432/tcp         pods of this node by name; both families where both have both
  osmia explain shop/web-0 198.51.100.1 53/udp        out of the cluster
  osmia explain 10.2.0.7 shop/db-0 icmp               from another node's pod; its egress is judged on its own node
  osmia explain 192.0.2.1 shop/db-0 80/tcp            from this node's own address: the door rule
  osmia explain 192.0.2.1 shop/db-0 80/tcp --forwarded
                                                      the same address on a packet that this node only forwards (NodePort, masquerade)
  osmia explain shop/web-0 shop/db-0 80/tcp --json --watch 1

It is asked what this node says of a first packet: its pods' egress if they send, their ingress if they receive. A pod of another node is
judged there: ask on both nodes. Of a service give the pod behind it, and the port that the pod listens on: rules are asked after the
translation. A pod with hostNetwork is its node: give the node's address.

Exit codes: 0 allowed by all that this node judges, 5 denied, 6 not judged on this node, or only behind a service, 4 no pod of this name here.

Lines with ? say what the catalogue does not know or what does not fit: then a name is missing, never the verdict.";

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// Sender: an address, or NAMESPACE/NAME of a pod of this node
    src: End,
    /// Receiver: an address, or NAMESPACE/NAME of a pod of this node
    dst: End,
    /// PORT/PROTOCOL, such as 80/tcp, or a protocol without ports, such as icmp
    #[arg(value_name = "PORT/PROTO")]
    traffic: Traffic,
    /// From this node's address, but only forwarded by it: no socket of the node sent it
    #[arg(long)]
    forwarded: bool,
}

/// One pair of addresses, told.
struct Explained {
    packet: Packet,
    port: Option<u16>,
    answer: Answer,
    sides: [Told; 2],
}

impl Explain {
    pub(super) fn run(&self, pins: &Pins, common: &Common) -> Result<Document, Failure> {
        let context = Context::read(pins)?;
        let judge = Judge::open(pins)?;
        let mut tries = 0;
        let (names, explained) = loop {
            tries += 1;
            let names = Names::read(common, &context.meta);
            let explained = self.explain(pins, &context, &judge, &names)?;
            let nameless = explained.iter().flat_map(|one| &one.sides).any(|told| told.nameless);
            if !nameless || tries == TRIES {
                break (names, explained);
            }
        };
        Ok(document(&context, &names, &explained))
    }

    fn explain(&self, pins: &Pins, context: &Context, judge: &Judge, names: &Names) -> Result<Vec<Explained>, Failure> {
        let endpoints = endpoint::present(pins)?;
        let mut explained = Vec::new();
        for (src, dst) in ends::pairs(&self.src, &self.dst, names, &endpoints)? {
            let (port, forwarded) = (self.traffic.port, self.forwarded);
            let proto = self.traffic.proto(src.is_v4());
            let packet = Packet { src, dst, proto, dport: port.unwrap_or(0), forwarded };
            let answer = judge.packet(&packet)?;
            let free = &answer.free;
            let tell = |direction, place: &Place, peer, freed, side: &Option<Side>| {
                let of = Of { direction, place, freed, peer, proto, port };
                match side {
                    Some(side) if free.translated_first && side.rules != OPEN => Told::translated(&of, names),
                    Some(side) => Told::here(&of, side, names),
                    None => Told::elsewhere(&of, context),
                }
            };
            let itself = free.itself.then_some("a pod reaches itself, whatever its policies");
            let door =
                free.node_socket.then_some("from a socket of this node: the door rule, a node reaches its own pods");
            let mut egress = tell(Direction::Egress, &answer.src, dst, itself, &answer.egress);
            let mut ingress = tell(Direction::Ingress, &answer.dst, src, door.or(itself), &answer.ingress);
            if door.is_some() && answer.ingress.is_some_and(|side| side.free) {
                let forwarded = "  what it only forwards with its own address (NodePort, masquerade) is judged: ask with --forwarded";
                ingress.lines.push(forwarded.to_owned());
            }
            let outs =
                [(&mut egress, dst, &answer.egress, &answer.dst), (&mut ingress, src, &answer.ingress, &answer.src)];
            for (told, peer, side, place) in outs {
                let is_pod = matches!(place, Place::Endpoint(..) | Place::RemotePod(_));
                let is_asked = side.as_ref().is_some_and(|side| side.rules != OPEN);
                told.stale.extend(crowded_out(names, peer).filter(|_| is_pod && is_asked));
            }
            explained.push(Explained { packet, port, answer, sides: [egress, ingress] });
        }
        Ok(explained)
    }
}

/// That no rule takes an address for a pod's, whether or not one speaks of it: from a lower one on there is no room.
fn crowded_out(names: &Names, address: Addr) -> Option<String> {
    let CrowdedOut { addresses, lowest } = names.told().crowded_out?;
    let address = ip(address);
    (address >= lowest).then(|| {
        format!(
            "{address} is no pod to the rules of this node, whatever they say: {addresses} addresses that they speak of have no room, from {lowest} on"
        )
    })
}

/// What is said of all pairs together: denied if one is.
fn all(verdicts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    verdicts.flatten().reduce(|a, b| a && b)
}

fn verdict_name(allows: Option<bool>) -> &'static str {
    match allows {
        Some(true) => "allow",
        Some(false) => "deny",
        None => "not_judged",
    }
}

fn document(context: &Context, names: &Names, explained: &[Explained]) -> Document {
    let behind =
        names.told().behind.iter().map(|behind| format!("{}; this is of before", in_force::behind_text(behind)));
    let stale: Vec<String> = names.stale().iter().cloned().chain(behind).collect();
    let pages: Vec<Shown> = explained.iter().map(|one| Shown::of(one, context, names)).collect();
    let records = explained.iter().map(|one| one.record(context, names)).collect();
    let allows = all(explained.iter().map(Explained::allows));
    let shown = stale.clone();
    let document = Document::new(move |_, page| {
        for (at, one) in pages.iter().enumerate() {
            if at > 0 {
                page.line("")?;
            }
            one.write(page)?;
        }
        say_stale(page, &shown)
    });
    let exit = match allows {
        Some(true) => 0,
        Some(false) => DENIED,
        None => NOT_JUDGED,
    };
    document
        .with("verdict", Cell::name(verdict_name(allows)))
        .with("stale", texts(stale))
        .list(List::of("packets", records))
        .ending(exit)
}

impl Explained {
    /// What is said of the packet; `None`: nothing here, or not before it is translated.
    fn allows(&self) -> Option<bool> {
        self.answer.allows().filter(|_| !self.answer.free.translated_first)
    }

    fn record(&self, context: &Context, names: &Names) -> Record {
        let Self { packet, port, answer, sides: [egress, ingress] } = self;
        Record::new()
            .with("proto", protocol::cell(packet.proto))
            .with("src", Cell::Record(end_record(packet.src, &answer.src, context, names)))
            .with("dst", Cell::Record(end_record(packet.dst, &answer.dst, context, names)))
            .with("dport", port.map_or(Cell::Absent, |port| Cell::Number(port.into())))
            .with("verdict", Cell::name(verdict_name(self.allows())))
            .with("egress", Cell::Record(egress.record.clone()))
            .with("ingress", Cell::Record(ingress.record.clone()))
            .with("notes", texts(notes(packet, answer)))
            .with("stale", texts(egress.stale.iter().chain(&ingress.stale).cloned()))
    }
}

/// What else befalls the packet: why it is dropped, whatever policy says.
fn notes(packet: &Packet, answer: &Answer) -> Vec<String> {
    let not_ready = |place: &Place| match place {
        Place::Endpoint(slot, row) if row.flags & E_READY == 0 => Some(format!(
            "the pod in slot {slot} is not ready: its packets are dropped (NOT_READY) before policy is asked"
        )),
        _ => None,
    };
    let mut notes: Vec<String> = [&answer.src, &answer.dst].into_iter().filter_map(not_ready).collect();
    notes.dedup();
    let (src, dst) = (ip(packet.src), ip(packet.dst));
    match answer.dst {
        Place::Nobody => notes
            .push(format!("no pod of this node has {dst}: the packet is dropped (NO_ENDPOINT), whatever policy says")),
        Place::Unowned => notes
            .push(format!("no node has {dst} in its ranges: the packet is dropped (UNOWNED), whatever policy says")),
        _ => {}
    }
    match answer.src {
        Place::Nobody => notes.push(format!(
            "no pod of this node has {src}: a packet from it that comes in from elsewhere is dropped (MARTIAN)"
        )),
        Place::Unowned => notes
            .push(format!("no node has {src} in its ranges: a packet from it is dropped where it comes in (UNOWNED)")),
        _ => {}
    }
    notes
}

fn place_name(place: &Place) -> &'static str {
    match place {
        Place::Endpoint(..) => "pod",
        Place::Nobody => "nobody",
        Place::Node => "this_node",
        Place::RemotePod(_) => "remote_pod",
        Place::RemoteNode(_) => "remote_node",
        Place::Service => "service",
        Place::Unowned => "unowned",
        Place::Outside => "outside",
    }
}

fn end_record(address: Addr, place: &Place, context: &Context, names: &Names) -> Record {
    let (slot, pod) = match place {
        Place::Endpoint(slot, _) => (Cell::Number((*slot).into()), names.pod_cell(*slot)),
        _ => (Cell::Absent, Cell::Absent),
    };
    let node = match place {
        Place::RemotePod(node) | Place::RemoteNode(node) => context.node((*node).into()),
        _ => Cell::Absent,
    };
    Record::new()
        .with("address", Cell::Address(address))
        .with("is", Cell::name(place_name(place)))
        .with("slot", slot)
        .with("pod", pod)
        .with("node", node)
}

fn end_text(address: Addr, place: &Place, context: &Context, names: &Names) -> String {
    let node = |node: u16| context.node(node.into());
    let whose = match place {
        Place::Endpoint(slot, _) => match names.pod(*slot).flatten() {
            Some(pod) => format!("pod {pod} of this node"),
            None => format!("the pod of this node in slot {slot}"),
        },
        Place::Nobody => "of this node's range, and no pod's".to_owned(),
        Place::Node => "this node, or a pod with its hostNetwork".to_owned(),
        Place::RemotePod(of) => format!("a pod of node {}", node(*of)),
        Place::RemoteNode(of) => format!("node {}, or a pod with its hostNetwork", node(*of)),
        Place::Service => "a service".to_owned(),
        Place::Unowned => "of the cluster's range, and no node's".to_owned(),
        Place::Outside => "outside".to_owned(),
    };
    format!("{} ({whose})", ip(address))
}

/// A pair as a person is shown it.
struct Shown {
    allows: Option<bool>,
    /// What a person reads first.
    verdict: &'static str,
    packet: String,
    lines: Vec<String>,
    stale: Vec<String>,
}

impl Shown {
    fn of(one: &Explained, context: &Context, names: &Names) -> Self {
        let Explained { packet, port, answer, sides } = one;
        let to = match port {
            Some(port) => socket_text(packet.dst, port.to_be_bytes()),
            None => ip(packet.dst).to_string(),
        };
        let mut lines = vec![
            format!("  from {}", end_text(packet.src, &answer.src, context, names)),
            format!("  to   {}", end_text(packet.dst, &answer.dst, context, names)),
        ];
        lines.extend(sides.iter().flat_map(|told| told.lines.iter().cloned()));
        let notes = notes(packet, answer);
        let verdict = match one.allows() {
            Some(false) => "denied",
            Some(true) if !notes.is_empty() => "allowed by policy, and dropped all the same",
            Some(true) if sides.iter().any(|told| told.elsewhere) => "allowed by this node, judged by another as well",
            Some(true) => "allowed",
            None if answer.free.translated_first => "not judged before it is translated",
            None => "not judged on this node",
        };
        lines.extend(notes.into_iter().map(|note| format!("note: {note}")));
        Self {
            allows: one.allows(),
            verdict,
            packet: format!("{} {} -> {to}", protocol::text(packet.proto), ip(packet.src)),
            lines,
            stale: sides.iter().flat_map(|told| told.stale.iter().cloned()).collect(),
        }
    }

    fn write(&self, page: &mut Page<'_>) -> std::io::Result<()> {
        let (verdict, packet) = (self.verdict, &self.packet);
        match self.allows {
            Some(true) => page.heading(format_args!("{verdict}: {packet}"))?,
            Some(false) => page.bad(format_args!("{verdict}: {packet}"))?,
            None => page.doubtful(format_args!("{verdict}: {packet}"))?,
        }
        self.lines.iter().try_for_each(|line| page.line(line))?;
        say_stale(page, &self.stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_pair_is_denied_is_denied() {
        assert_eq!(all([Some(true), None, Some(true)].into_iter()), Some(true));
        assert_eq!(all([Some(true), Some(false)].into_iter()), Some(false));
        assert_eq!(all([None, None].into_iter()), None);
    }
}

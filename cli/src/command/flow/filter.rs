//! Which entries are wanted. Applied to the raw entries, before anything is decoded.

use clap::{Args, builder::PossibleValuesParser};
use osmia_maps::{
    decode::{
        Context, Prefix, address,
        flow::{ACTIONS, FlowTuple, node_of},
        protocol,
    },
    layout::{
        Addr, FlowEntry,
        flow::{F_REWRITE_DST, F_REWRITE_SRC},
    },
};

use super::State;

#[derive(Args, Debug, Default)]
pub(super) struct Wanted {
    /// Source address or prefix
    #[arg(long, value_name = "ADDRESS")]
    src: Option<Prefix>,
    /// Destination address or prefix
    #[arg(long, value_name = "ADDRESS")]
    dst: Option<Prefix>,
    /// Source or destination port
    #[arg(long)]
    port: Option<u16>,
    /// Protocol: tcp, udp, icmp, icmpv6, sctp, or a number
    #[arg(long, value_parser = protocol::parse)]
    proto: Option<u8>,
    /// Address of a pod: source or destination, before or after rewriting
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pod: Option<Addr>,
    /// Another node by number or address: packets go to it or come from its tunnel
    #[arg(long)]
    node: Option<String>,
    /// Which table
    #[arg(long)]
    state: Option<State>,
    /// What is done with the packets
    #[arg(long, value_parser = PossibleValuesParser::new(ACTIONS.map(|(_, name)| name)))]
    action: Option<String>,
}

impl Wanted {
    /// The filter, once it is known which nodes there are.
    pub(super) fn filter(&self, context: &Context) -> Result<Filter<'_>, String> {
        let node = self.node.as_deref().map(|node| context.node_number(node)).transpose()?;
        if node == Some(0) {
            return Err("node 0 is this one: every flow is its own".to_owned());
        }
        let action = ACTIONS.into_iter().find(|(_, name)| Some(*name) == self.action.as_deref());
        Ok(Filter { options: self, node, action: action.map(|(action, _)| action as u8) })
    }
}

/// The options with names looked up.
pub(super) struct Filter<'a> {
    options: &'a Wanted,
    node: Option<u32>,
    action: Option<u8>,
}

impl Filter<'_> {
    pub(super) fn takes(&self, state: State, tuple: &FlowTuple, entry: &FlowEntry) -> bool {
        let Wanted { src, dst, port, proto, pod, state: wanted, .. } = self.options;
        let rewritten = |flag: u8, to: Addr| (entry.flags & flag != 0).then_some(to);
        wanted.is_none_or(|wanted| wanted == state)
            && proto.is_none_or(|proto| proto == tuple.proto)
            && port.is_none_or(|port| [tuple.sport, tuple.dport].contains(&port.to_be_bytes()))
            && src.is_none_or(|prefix| prefix.covers(tuple.src))
            && dst.is_none_or(|prefix| prefix.covers(tuple.dst))
            && pod.is_none_or(|pod| {
                tuple.src == pod
                    || tuple.dst == pod
                    || rewritten(F_REWRITE_SRC, entry.new_src) == Some(pod)
                    || rewritten(F_REWRITE_DST, entry.new_dst) == Some(pod)
            })
            && self.action.is_none_or(|action| action == entry.action)
            && self.node.is_none_or(|node| node == node_of(entry) || node == u32::from(entry.from_node))
    }
}

#[cfg(test)]
mod tests {
    use osmia_maps::layout::{FlowKey4, FlowKey6, flow::FlowAction};

    use super::*;

    fn tuple() -> FlowTuple {
        FlowKey4 {
            src: [10, 1, 0, 5],
            dst: [10, 2, 0, 7],
            sport: 40000_u16.to_be_bytes(),
            dport: 80_u16.to_be_bytes(),
            proto: 6,
            ..FlowKey4::default()
        }
        .into()
    }

    fn entry() -> FlowEntry {
        FlowEntry { action: FlowAction::Tunnel as u8, target: 3, ..FlowEntry::default() }
    }

    fn takes(options: &Wanted, entry: &FlowEntry) -> bool {
        let action = ACTIONS.into_iter().find(|(_, name)| Some(*name) == options.action.as_deref());
        let node = options.node.as_deref().map(|node| node.parse().unwrap());
        let filter = Filter { options, node, action: action.map(|(action, _)| action as u8) };
        filter.takes(State::Established, &tuple(), entry)
    }

    #[test]
    fn each_filter_takes_what_it_names_and_nothing_else() {
        let all = Wanted::default;
        let prefix = |text: &str| Some(text.parse().unwrap());
        let addr = |text: &str| Some(address(text).unwrap());
        let text = |text: &str| Some(text.to_owned());
        for (yes, no) in [
            (Wanted { src: prefix("10.1.0.5"), ..all() }, Wanted { src: prefix("10.2.0.7"), ..all() }),
            (Wanted { dst: prefix("10.2.0.0/16"), ..all() }, Wanted { dst: prefix("10.1.0.0/16"), ..all() }),
            (Wanted { port: Some(80), ..all() }, Wanted { port: Some(81), ..all() }),
            (Wanted { port: Some(40000), ..all() }, Wanted { port: Some(0), ..all() }),
            (Wanted { proto: Some(6), ..all() }, Wanted { proto: Some(17), ..all() }),
            (Wanted { pod: addr("10.1.0.5"), ..all() }, Wanted { pod: addr("10.1.0.6"), ..all() }),
            (Wanted { pod: addr("10.2.0.7"), ..all() }, Wanted { pod: addr("::ffff:10.2.0.8"), ..all() }),
            (Wanted { node: text("3"), ..all() }, Wanted { node: text("4"), ..all() }),
            (Wanted { state: Some(State::Established), ..all() }, Wanted { state: Some(State::New), ..all() }),
            (Wanted { action: text("tunnel"), ..all() }, Wanted { action: text("native"), ..all() }),
            (all(), Wanted { src: prefix("10.1.0.5"), port: Some(81), ..all() }),
        ] {
            assert!(takes(&yes, &entry()), "{yes:?}");
            assert!(!takes(&no, &entry()), "{no:?}");
        }
    }

    #[test]
    fn a_pod_is_found_behind_a_rewrite_and_only_where_one_is_done() {
        let options = Wanted { pod: Some(address("10.9.9.9").unwrap()), ..Wanted::default() };
        let mut entry = FlowEntry { new_dst: address("10.9.9.9").unwrap(), ..entry() };
        assert!(!takes(&options, &entry));
        entry.flags = F_REWRITE_DST;
        assert!(takes(&options, &entry));
    }

    #[test]
    fn a_node_is_where_packets_come_from_as_well() {
        let options = Wanted { node: Some("5".to_owned()), ..Wanted::default() };
        assert!(takes(&options, &FlowEntry { action: FlowAction::Peer as u8, target: 12, from_node: 5, ..entry() }));
        // 5 is a device here.
        assert!(!takes(&options, &FlowEntry { action: FlowAction::Peer as u8, target: 5, ..entry() }));
    }

    #[test]
    fn an_ipv4_prefix_takes_no_ipv6_flow() {
        let options = Wanted { src: Some("0.0.0.0/0".parse().unwrap()), ..Wanted::default() };
        let filter = Filter { options: &options, node: None, action: None };
        let v6: FlowTuple = FlowKey6 { src: [0xfd; 16], ..FlowKey6::default() }.into();
        assert!(filter.takes(State::New, &tuple(), &entry()));
        assert!(!filter.takes(State::New, &v6, &entry()));
    }
}

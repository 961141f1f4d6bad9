//! Other nodes by number.

use osmia_ebpf::layout::{
    Addr, Node,
    node::{N_OUTER_V6, N_PRESENT, N_TUNNEL, OUTER_V4_LEN, OUTER_V6_LEN},
};

use super::{
    Cell, Context, Record,
    codec::{Codec, exact},
};
use crate::tables;

const FLAGS: [(u32, &str); 3] = [(N_PRESENT, "present"), (N_TUNNEL, "tunnel"), (N_OUTER_V6, "outer_v6")];

/// The fields of a node.
#[must_use]
pub fn value(node: &Node, context: &Context) -> Record {
    let tunnel = node.flags & N_TUNNEL != 0;
    let (length, source) = match node.flags & N_OUTER_V6 {
        0 => (OUTER_V4_LEN, node.outer.get(12..16).and_then(|b| b.try_into().ok()).map(Addr::v4)),
        _ => (OUTER_V6_LEN, node.outer.get(8..24).and_then(|b| b.try_into().ok()).map(Addr::v6)),
    };
    let outer = node.outer.get(..length).unwrap_or_default().to_vec();
    Record::new()
        .with("address", Cell::address(node.tunnel))
        .with("way", Cell::name(if tunnel { "tunnel" } else { "native" }))
        .with("uplink", context.device(node.uplink))
        .with("mtu", Cell::Number(u64::from(node.mtu)))
        .with("next_hop4", Cell::address(node.next_hop4))
        .with("next_hop6", Cell::address(node.next_hop6))
        .with("next_hop_tunnel", Cell::address(node.next_hop_tunnel))
        .with("outer_source", if tunnel { source.map_or(Cell::Absent, Cell::address) } else { Cell::Absent })
        .with("flags", Cell::flags(node.flags, &FLAGS))
        .with("outer", if tunnel { Cell::Hex(outer) } else { Cell::Absent })
}

pub(super) static NODES: Codec<u32, Node> = Codec {
    spec: tables::NODES,
    about: "other nodes by number: how to reach them, whose tunnel packets to believe",
    key_help: "NUMBER or the node's address",
    example: "192.168.0.3",
    parse: |text, context| context.node_number(text),
    text: u32::to_string,
    key: |number, _| Record::new().with("number", Cell::Number(u64::from(*number))),
    value,
    used: |node| node.flags & N_PRESENT != 0,
    find: exact,
};

#[cfg(test)]
mod tests {
    use super::super::testing::{context, json};
    use super::*;

    fn node() -> Node {
        let mut outer = [0; 72];
        outer[12..16].copy_from_slice(&[192, 168, 0, 1]);
        Node {
            flags: N_PRESENT | N_TUNNEL,
            uplink: 2,
            mtu: 1450,
            zero: [0; 6],
            tunnel: Addr::v4([192, 168, 0, 3]),
            next_hop4: Addr::NONE,
            next_hop6: Addr::NONE,
            next_hop_tunnel: Addr::v4([192, 168, 0, 3]),
            outer,
        }
    }

    #[test]
    fn a_node_is_shown_with_its_way() {
        let text = value(&node(), &context()).to_string();
        assert!(
            text.starts_with(
                "address=192.168.0.3 way=tunnel uplink=#2 mtu=1450 next_hop_tunnel=192.168.0.3 outer_source=192.168.0.1 \
                 flags=present,tunnel outer=00"
            ),
            "{text}"
        );
        let native = Node { flags: N_PRESENT, ..node() };
        assert!(
            json(&value(&native, &context())).ends_with(r#""outer_source":null,"flags":["present"],"outer":null}"#)
        );
    }

    #[test]
    fn an_outer_ipv6_header_has_its_source_elsewhere() {
        let mut node = Node { flags: N_PRESENT | N_TUNNEL | N_OUTER_V6, ..node() };
        node.outer[8] = 0xfd;
        node.outer[23] = 1;
        let record = value(&node, &context());
        assert_eq!(record.get("outer_source").unwrap().to_string(), "fd00:0:c0a8:1::1");
        assert!(matches!(record.get("outer"), Some(Cell::Hex(bytes)) if bytes.len() == 70));
    }

    #[test]
    fn bytes_nobody_writes_are_shown_as_they_are() {
        let all = Addr([255; 16]);
        let node = Node {
            flags: u32::MAX,
            uplink: u32::MAX,
            mtu: u16::MAX,
            zero: [255; 6],
            tunnel: all,
            next_hop4: all,
            next_hop6: all,
            next_hop_tunnel: all,
            outer: [255; 72],
        };
        assert!(value(&node, &context()).to_string().contains("flags=present,tunnel,outer_v6,0xfffffff8"));
    }

    #[test]
    fn a_node_is_found_by_its_number_or_its_address() {
        assert_eq!((NODES.parse)("3", &context()), Ok(3));
        assert_eq!((NODES.parse)("192.168.0.3", &context()), Ok(3));
        assert!((NODES.parse)("192.168.0.4", &context()).is_err());
        assert!((NODES.parse)("worker-1", &context()).is_err());
    }
}

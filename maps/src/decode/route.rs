//! The prefix table.

use aya::Pod;
use osmia_ebpf::layout::{Addr, Route, RouteKey, route::RouteKind};

use super::{Cell, Context, Prefix, Record, codec::Codec};
use crate::{MapError, Table, tables};

fn kind_name(kind: RouteKind) -> &'static str {
    match kind {
        RouteKind::LocalBlock => "local_block",
        RouteKind::LocalNode => "local_node",
        RouteKind::RemoteBlock => "remote_block",
        RouteKind::RemoteNode => "remote_node",
        RouteKind::Stack => "stack",
        RouteKind::Unowned => "unowned",
    }
}

pub(super) fn prefix(key: &RouteKey) -> Prefix {
    Prefix { addr: Addr(key.addr), bits: key.bits }
}

fn value(route: &Route, context: &Context) -> Record {
    Record::new()
        .with("kind", Cell::name_or(RouteKind::from_byte(route.kind).map(kind_name), route.kind))
        .with("node", context.node(u32::from(route.node)))
}

/// The row that the programs' lookup would take: the kernel gives its value but not its prefix, so that is looked for among all.
pub(super) fn longest<V: Pod>(table: &Table<RouteKey, V>, key: &RouteKey) -> Result<Option<(RouteKey, V)>, MapError> {
    let mut best: Option<(RouteKey, V)> = None;
    table.each_batch(|keys, values| {
        for (row, value) in keys.iter().zip(values) {
            let longer = best.is_none_or(|(so_far, _)| row.bits > so_far.bits);
            if longer && row.bits <= key.bits && prefix(row).covers(Addr(key.addr)) {
                best = Some((*row, *value));
            }
        }
        Ok(())
    })?;
    Ok(best)
}

pub(super) static ROUTES: Codec<RouteKey, Route> = Codec {
    spec: tables::ROUTES,
    about: "whose is an address: the longest prefix wins",
    key_help: "ADDRESS or PREFIX; gives the longest prefix that covers it",
    example: "10.1.0.5",
    parse: |text, _| {
        let Prefix { addr, bits } = text.parse()?;
        Ok(RouteKey { bits, addr: addr.0 })
    },
    text: |key| prefix(key).to_string(),
    key: |key, _| Record::new().with("prefix", Cell::Prefix(Addr(key.addr), key.bits)),
    value,
    used: |_| true,
    find: longest,
};

#[cfg(test)]
mod tests {
    use super::super::testing::context;
    use super::*;

    #[test]
    fn routes_are_shown_by_names() {
        let text = |kind, node| value(&Route { kind, zero: 0, node }, &context()).to_string();
        assert_eq!(text(RouteKind::RemoteBlock as u8, 3), "kind=remote_block node=3(192.168.0.3)");
        assert_eq!(text(RouteKind::RemoteNode as u8, 4), "kind=remote_node node=4(no row)");
        assert_eq!(text(RouteKind::LocalBlock as u8, 0), "kind=local_block");
        assert_eq!(text(0, 0), "kind=unknown(0)");
        assert_eq!(text(255, u16::MAX), "kind=unknown(255) node=65535(no row)");
    }

    #[test]
    fn keys_come_back_from_their_text() {
        for key in ["10.0.0.0/8", "fd00::/64", "10.1.2.3/32", "0.0.0.0/0", "::/0"] {
            let parsed = (ROUTES.parse)(key, &context()).unwrap();
            assert_eq!((ROUTES.text)(&parsed), key);
        }
        assert_eq!((ROUTES.parse)("10.0.0.1", &context()).unwrap().bits, 128);
        // Bytes nobody writes.
        let odd = RouteKey { bits: u32::MAX, addr: [255; 16] };
        assert_eq!((ROUTES.text)(&odd), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/4294967295");
    }
}

//! The meta row.

use osmia_ebpf::layout::Meta;

use super::{
    Cell, Context, Record,
    codec::{Codec, exact},
    slots,
};
use crate::tables;

/// The version of the agent that wrote the row: what is printable of it, up to the first zero.
#[must_use]
pub fn version(meta: &Meta) -> String {
    let text = meta.version.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn value(meta: &Meta, context: &Context) -> Record {
    let number = |n: u32| Cell::Number(u64::from(n));
    let since = |ns| Cell::Age(context.clock.map(|clock| clock.since(ns)));
    Record::new()
        .with("magic", Cell::Text(String::from_utf8_lossy(&meta.magic).escape_default().to_string().into()))
        .with("layout", number(meta.layout))
        .with("version", Cell::Text(version(meta).into()))
        .with("object", Cell::Text(object(meta).into()))
        .with("loaded", since(meta.loaded_ns))
        .with("catalogue", Cell::Number(meta.catalogue))
        .with("hz", number(meta.hz))
        .with("tick_shift", number(meta.tick_shift))
        .with("clock_ns", Cell::Number(meta.clock_ns))
        .with("jiffies", Cell::Number(meta.jiffies))
}

/// Hash of the object, 16 hex digits.
#[must_use]
pub fn object(meta: &Meta) -> String {
    format!("{:016x}", meta.object)
}

pub(super) static META: Codec<u32, Meta> = Codec {
    spec: tables::META,
    about: "what the other maps are: layout, agent, clock; one row",
    key_help: "nothing, there is one row",
    example: "0",
    parse: slots::only_row,
    text: u32::to_string,
    key: slots::row_key,
    value,
    used: |meta| *meta != Meta::default(),
    find: exact,
};

#[cfg(test)]
mod tests {
    use osmia_ebpf::layout::meta::MAGIC;

    use super::super::testing::context;
    use super::*;

    #[test]
    fn the_row_is_shown_by_names() {
        let mut meta = Meta { magic: MAGIC, layout: 1, hz: 250, tick_shift: 2, object: 0xab, ..Meta::default() };
        meta.version[..5].copy_from_slice(b"0.1.0");
        assert_eq!(
            value(&meta, &context()).to_string(),
            "magic=osmiaCNI layout=1 version=0.1.0 object=00000000000000ab loaded=0.0s catalogue=0 hz=250 tick_shift=2 clock_ns=0 \
             jiffies=0"
        );
    }

    #[test]
    fn bytes_nobody_writes_reach_no_terminal() {
        let meta = Meta { magic: [0x1b; 8], version: [0x1b; 32], ..Meta::default() };
        let text = value(&meta, &context()).to_string();
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(value(&Meta { version: [255; 32], ..meta }, &context()).to_string().contains('\u{fffd}'));
    }

    #[test]
    fn there_is_one_row() {
        assert_eq!((META.parse)("", &context()), Ok(0));
        assert_eq!((META.parse)("0", &context()), Ok(0));
        assert!((META.parse)("1", &context()).is_err());
    }
}

//! A decoded value.

use std::{borrow::Cow, fmt, rc::Rc, time::Duration};

use osmia_ebpf::layout::Addr;
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use super::{Record, ip};

/// Raw bytes that a person is shown.
const SHOWN: usize = 8;

/// A decoded value: `Display` is for people, `Serialize` for programs.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// Nothing is meant. JSON: null.
    Absent,
    /// Yes or no.
    Bool(bool),
    /// A number.
    Number(u64),
    /// A name.
    Text(Cow<'static, str>),
    /// An address; a mapped IPv4 address is shown as IPv4. JSON: a string.
    Address(Addr),
    /// A prefix, bits counted in the mapped form. JSON: a string.
    Prefix(Addr, u32),
    /// A MAC address. JSON: a string.
    Mac([u8; 6]),
    /// Flags by name, bits without a name in hex. JSON: a list of strings.
    Flags(Vec<Cow<'static, str>>),
    /// How long ago; `None`: not known. JSON: seconds, or null.
    Age(Option<Duration>),
    /// Bytes. JSON: a number.
    Size(u64),
    /// Raw bytes, of which a person sees the first ones. JSON: a string of all hex digits.
    Hex(Vec<u8>),
    /// A device. JSON: `{"ifindex":…,"name":…}`, the name null where it is not known.
    Device(u32, Option<Rc<str>>),
    /// A node. JSON: `{"number":…,"address":…}`, the address null where the number has no row.
    Node(u32, Option<Addr>),
    /// Named values.
    Record(Record),
    /// Several. JSON: a list.
    List(Vec<Cell>),
}

impl Cell {
    /// A name that is known when this is compiled.
    #[must_use]
    pub const fn name(name: &'static str) -> Self {
        Self::Text(Cow::Borrowed(name))
    }

    /// A name, or the number of one that nobody gave.
    #[must_use]
    pub fn name_or(name: Option<&'static str>, number: impl Into<u64>) -> Self {
        name.map_or_else(|| Self::Text(format!("unknown({})", number.into()).into()), Self::name)
    }

    /// A number, of which 0 means none.
    #[must_use]
    pub fn nonzero(number: impl Into<u64>) -> Self {
        match number.into() {
            0 => Self::Absent,
            number => Self::Number(number),
        }
    }

    /// An address, of which the unspecified one means none.
    #[must_use]
    pub fn address(addr: Addr) -> Self {
        if addr.is_none() { Self::Absent } else { Self::Address(addr) }
    }

    /// An IPv4 address, of which 0.0.0.0 means none.
    #[must_use]
    pub fn v4(addr: [u8; 4]) -> Self {
        if addr == [0; 4] { Self::Absent } else { Self::Address(Addr::v4(addr)) }
    }

    /// The names of the bits that are set, in the order of `names`.
    #[must_use]
    pub fn flags(bits: u32, names: &[(u32, &'static str)]) -> Self {
        let mut known = 0;
        let mut flags = Vec::new();
        for (bit, name) in names {
            known |= bit;
            if bits & bit != 0 {
                flags.push(Cow::Borrowed(*name));
            }
        }
        if bits & !known != 0 {
            flags.push(Cow::Owned(format!("{:#x}", bits & !known)));
        }
        Self::Flags(flags)
    }

    /// Whether there is nothing to see.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Absent | Self::Age(None) => true,
            Self::Flags(flags) => flags.is_empty(),
            Self::List(cells) => cells.is_empty(),
            _ => false,
        }
    }

    /// Whether it stands at the right of its column.
    #[must_use]
    pub const fn is_numeric(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Age(_) | Self::Size(_))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_absent() {
            return f.write_str("-");
        }
        match self {
            Self::Absent | Self::Age(None) => Ok(()),
            Self::Bool(yes) => f.write_str(if *yes { "yes" } else { "no" }),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Address(addr) => write!(f, "{}", ip(*addr)),
            Self::Prefix(addr, bits) => write!(f, "{}", super::Prefix { addr: *addr, bits: *bits }),
            Self::Mac([a, b, c, d, e, g]) => write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"),
            Self::Flags(flags) => f.write_str(&flags.join(",")),
            Self::Age(Some(age)) => f.write_str(&human_duration(*age)),
            Self::Size(bytes) => f.write_str(&human_size(*bytes)),
            Self::Hex(bytes) => match bytes.get(..SHOWN) {
                Some(first) if bytes.len() > SHOWN => write!(f, "{}...", hex(first)),
                _ => f.write_str(&hex(bytes)),
            },
            Self::Device(ifindex, Some(name)) => write!(f, "{name}({ifindex})"),
            Self::Device(ifindex, None) => write!(f, "#{ifindex}"),
            Self::Node(number, Some(addr)) => write!(f, "{number}({})", ip(*addr)),
            Self::Node(number, None) => write!(f, "{number}(no row)"),
            Self::Record(record) => write!(f, "{record}"),
            Self::List(cells) => {
                for (i, cell) in cells.iter().enumerate() {
                    write!(f, "{}{cell}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent | Self::Age(None) => s.serialize_none(),
            Self::Bool(yes) => s.serialize_bool(*yes),
            Self::Number(number) | Self::Size(number) => s.serialize_u64(*number),
            Self::Text(text) => s.serialize_str(text),
            Self::Address(_) | Self::Prefix(..) | Self::Mac(_) => s.collect_str(self),
            Self::Hex(bytes) => s.serialize_str(&hex(bytes)),
            Self::Flags(flags) => s.collect_seq(flags),
            // Milliseconds: finer than a tick.
            Self::Age(Some(age)) => s.serialize_f64(age.as_millis() as f64 / 1000.0),
            Self::Device(ifindex, name) => {
                let mut map = s.serialize_map(Some(2))?;
                map.serialize_entry("ifindex", ifindex)?;
                map.serialize_entry("name", &name.as_deref())?;
                map.end()
            }
            Self::Node(number, addr) => {
                let mut map = s.serialize_map(Some(2))?;
                map.serialize_entry("number", number)?;
                map.serialize_entry("address", &addr.map(Self::Address))?;
                map.end()
            }
            Self::Record(record) => record.serialize(s),
            Self::List(cells) => s.collect_seq(cells),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A duration in its two largest units, below a minute in tenths: `0.4s`, `5m12s`, `2d3h`.
#[must_use]
pub fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        60..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// Bytes with a binary unit: `812 B`, `1.5 MiB`.
#[must_use]
pub fn human_size(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(cell: &Cell) -> (String, String) {
        (cell.to_string(), serde_json::to_string(cell).unwrap())
    }

    #[test]
    fn a_cell_reads_the_same_in_both_forms() {
        let device = |name: Option<&str>| Cell::Device(12, name.map(Rc::from));
        let of = |text: &str, json: &str| (text.to_owned(), json.to_owned());
        for (cell, text, json) in [
            (Cell::Absent, "-", "null"),
            (Cell::Bool(true), "yes", "true"),
            (Cell::nonzero(0_u32), "-", "null"),
            (Cell::Address(Addr::v4([10, 0, 0, 1])), "10.0.0.1", r#""10.0.0.1""#),
            (Cell::Address(Addr([0xfd; 16])), "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd", ""),
            (Cell::Prefix(Addr::v4([10, 0, 0, 0]), 96 + 8), "10.0.0.0/8", r#""10.0.0.0/8""#),
            (Cell::Mac([2, 0, 0xab, 0, 0, 1]), "02:00:ab:00:00:01", r#""02:00:ab:00:00:01""#),
            (Cell::flags(0b1011, &[(1, "a"), (2, "b")]), "a,b,0x8", r#"["a","b","0x8"]"#),
            (Cell::flags(0, &[(1, "a")]), "-", "[]"),
            (Cell::Age(Some(Duration::from_millis(90_250))), "1m30s", "90.25"),
            (Cell::Age(None), "-", "null"),
            (Cell::Size(1536), "1.5 KiB", "1536"),
            (Cell::Hex(vec![0, 0xff]), "00ff", r#""00ff""#),
            (Cell::Hex(vec![0xab; 10]), "abababababababab...", r#""abababababababababab""#),
            (device(Some("eth0")), "eth0(12)", r#"{"ifindex":12,"name":"eth0"}"#),
            (device(None), "#12", r#"{"ifindex":12,"name":null}"#),
            (Cell::Node(3, Some(Addr::v4([1, 2, 3, 4]))), "3(1.2.3.4)", r#"{"number":3,"address":"1.2.3.4"}"#),
            (Cell::Node(3, None), "3(no row)", r#"{"number":3,"address":null}"#),
            (Cell::name_or(None, 77_u8), "unknown(77)", r#""unknown(77)""#),
            (Cell::List(vec![Cell::Number(1), Cell::Number(2)]), "1,2", "[1,2]"),
        ] {
            let (is_text, is_json) = both(&cell);
            let json = if json.is_empty() { format!("\"{text}\"") } else { json.to_owned() };
            assert_eq!((is_text, is_json), of(text, &json), "{cell:?}");
        }
    }

    #[test]
    fn durations_and_sizes_have_the_unit_a_person_would_take() {
        let ms = |ms| human_duration(Duration::from_millis(ms));
        assert_eq!(
            [ms(0), ms(59_999), ms(60_000), ms(3_600_000 * 5), ms(86_400_000 * 2 + 3_600_000 * 3)],
            ["0.0s", "59.9s", "1m0s", "5h0m", "2d3h"]
        );
        assert_eq!(
            [human_size(1023), human_size(1 << 30), human_size(u64::MAX)],
            ["1023 B", "1.0 GiB", "16777216.0 TiB"]
        );
    }
}

//! The per-CPU counters: drops by reason, and what was done.

use osmia_ebpf::layout::{DropReason, Stat, drops::DropCount};

use super::{
    Cell, Context, KeyError, MapView, Record, Row, Rows,
    codec::GetError,
    drops::{parse_reason, reason_cell},
    number,
};
use crate::{Access, MapError, PerCpuSpec, Pins, Sum, tables};

/// How the rows of a per-CPU array are decoded.
pub(super) struct Counters<V: 'static> {
    spec: PerCpuSpec<V>,
    about: &'static str,
    key_help: &'static str,
    example: &'static str,
    parse: fn(&str) -> Result<u32, String>,
    /// The name of a row; `None` for one without a meaning.
    name: fn(u32) -> Option<&'static str>,
    key: fn(u32) -> Record,
    value: fn(V) -> Record,
}

impl<V: Sum + PartialEq> Counters<V> {
    fn row(&self, index: u32, sum: V, per_cpu: Option<Vec<V>>) -> Row {
        let text = (self.name)(index).map_or_else(|| index.to_string(), str::to_owned);
        let mut value = (self.value)(sum);
        if let Some(per_cpu) = per_cpu {
            value =
                value.with("per_cpu", Cell::List(per_cpu.into_iter().map(|v| Cell::Record((self.value)(v))).collect()));
        }
        Row { text, key: (self.key)(index), value }
    }
}

impl<V: Sum + PartialEq> MapView for Counters<V> {
    fn name(&self) -> &'static str {
        self.spec.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn key_help(&self) -> &'static str {
        self.key_help
    }

    fn example(&self) -> &'static str {
        self.example
    }

    fn used(&self, pins: &Pins) -> Result<u32, MapError> {
        let sums = self.spec.open(pins, Access::ReadOnly)?.sums()?;
        Ok(u32::try_from(sums.into_iter().filter(|sum| *sum != V::ZERO).count()).unwrap_or(u32::MAX))
    }

    fn rows(&'static self, pins: &Pins, all: bool) -> Result<Box<dyn Rows>, MapError> {
        let sums = (0..).zip(self.spec.open(pins, Access::ReadOnly)?.sums()?);
        let wanted = |(index, sum): &(u32, V)| *sum != V::ZERO || all && (self.name)(*index).is_some();
        Ok(Box::new(Summed { of: self, sums: sums.filter(wanted).collect() }))
    }

    /// The sum, and what each CPU counted.
    fn get(&self, pins: &Pins, _: &Context, key: &str) -> Result<Option<Row>, GetError> {
        let index = (self.parse)(key.trim()).map_err(|why| KeyError::new(self, why))?;
        let table = self.spec.open(pins, Access::ReadOnly)?;
        if index >= self.facts(pins)?.max {
            return Ok(None);
        }
        let values = table.values(index)?;
        let sum = values.iter().copied().fold(V::ZERO, Sum::plus);
        Ok(Some(self.row(index, sum, Some(values))))
    }
}

struct Summed<V: 'static> {
    of: &'static Counters<V>,
    sums: Vec<(u32, V)>,
}

impl<V: Sum + PartialEq> Rows for Summed<V> {
    fn len(&self) -> usize {
        self.sums.len()
    }

    fn row(&self, index: usize, _: &Context) -> Option<Row> {
        self.sums.get(index).map(|(index, sum)| self.of.row(*index, *sum, None))
    }
}

fn stat(index: u32) -> Option<Stat> {
    Stat::ALL.iter().copied().find(|stat| *stat as u32 == index)
}

pub(super) static DROPS: Counters<DropCount> = Counters {
    spec: tables::DROPS,
    about: "drops by reason, over all CPUs",
    key_help: "REASON, by name or number",
    example: "TUNNEL_SPOOF",
    parse: |text| parse_reason(text).map(u32::from),
    name: |index| u8::try_from(index).ok().and_then(DropReason::from_byte).map(DropReason::name),
    key: |index| Record::new().with("reason", reason_cell(u8::try_from(index).unwrap_or(u8::MAX))),
    value: |count| Record::new().with("packets", Cell::Number(count.packets)).with("bytes", Cell::Number(count.bytes)),
};

pub(super) static STATS: Counters<u64> = Counters {
    spec: tables::STATS,
    about: "what was done, counted over all CPUs",
    key_help: "COUNTER, by name or number",
    example: "forward_peer",
    parse: |text| match Stat::ALL.iter().find(|stat| stat.name() == text) {
        Some(stat) => Ok(*stat as u32),
        None => number(text).map_err(|_| format!("`{text}` is no counter (`osmia map dump stats --all` lists them)")),
    },
    name: |index| stat(index).map(Stat::name),
    key: |index| Record::new().with("counter", Cell::name_or(stat(index).map(Stat::name), index)),
    value: |count| Record::new().with("count", Cell::Number(count)),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names_and_unknown_rows_numbers() {
        assert_eq!((STATS.key)(0).to_string(), "counter=forward_peer");
        assert_eq!((STATS.key)(63).to_string(), "counter=unknown(63)");
        assert_eq!((STATS.parse)("flow_table_full"), Ok(Stat::FlowTableFull as u32));
        assert_eq!((STATS.parse)("63"), Ok(63));
        assert!((STATS.parse)("nothing").is_err());
        assert_eq!((DROPS.key)(16).to_string(), "reason=TUNNEL_SPOOF");
        assert_eq!((DROPS.parse)("tunnel_spoof"), Ok(16));
        assert_eq!((DROPS.key)(0).to_string(), "reason=unknown(0)");
    }

    #[test]
    fn one_row_has_its_cpus() {
        let count = |packets| DropCount { packets, bytes: packets * 100 };
        let row = DROPS.row(16, count(3), Some(vec![count(1), count(2)]));
        assert_eq!(row.text, "TUNNEL_SPOOF");
        assert_eq!(
            serde_json::to_string(&row.value).unwrap(),
            r#"{"packets":3,"bytes":300,"per_cpu":[{"packets":1,"bytes":100},{"packets":2,"bytes":200}]}"#
        );
    }
}

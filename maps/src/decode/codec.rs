//! A map whatever its types: what it is, its rows decoded, one row by a key that a person wrote.

use aya::Pod;

use super::{Context, Record};
use crate::{Access, MapError, Pins, Spec, Table, facts::Facts};

/// A decoded row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The key as `get` takes it.
    pub text: String,
    /// The key.
    pub key: Record,
    /// The value.
    pub value: Record,
}

/// Rows as they were read, decoded when they are looked at: a full flow table decoded at once would be hundreds of megabytes.
pub trait Rows {
    /// How many.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row `index`, counted from 0 in the order of the keys.
    fn row(&self, index: usize, context: &Context) -> Option<Row>;
}

/// What a person wrote is no key of the map.
#[derive(Debug, thiserror::Error)]
#[error("not a key of {map}: {why}\nits keys are written: {help}, such as: {example}")]
pub struct KeyError {
    map: &'static str,
    why: String,
    help: &'static str,
    example: &'static str,
}

impl KeyError {
    pub(super) fn new(map: &dyn MapView, why: String) -> Self {
        Self { map: map.name(), why, help: map.key_help(), example: map.example() }
    }
}

/// Why a row could not be had.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The key is none.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The map failed.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// A map, decoded. Opens read-only, always.
pub trait MapView: Sync {
    /// Name of the pin.
    fn name(&self) -> &'static str;
    /// What it holds, in a few words.
    fn about(&self) -> &'static str;
    /// How its keys are written.
    fn key_help(&self) -> &'static str;
    /// A key as an example.
    fn example(&self) -> &'static str;

    /// Kind, sizes, memory.
    ///
    /// # Errors
    /// The map is missing or not to be opened.
    fn facts(&self, pins: &Pins) -> Result<Facts, MapError> {
        Facts::of(pins, self.name())
    }

    /// Rows in use.
    ///
    /// # Errors
    /// The map is missing, of another shape, or the kernel refuses.
    fn used(&self, pins: &Pins) -> Result<u32, MapError>;

    /// All rows in use by key. With `all` those that an array has but nobody uses as well.
    ///
    /// # Errors
    /// As for [`Self::used`].
    fn rows(&'static self, pins: &Pins, all: bool) -> Result<Box<dyn Rows>, MapError>;

    /// The row of a key.
    ///
    /// # Errors
    /// The text is no key, or as for [`Self::used`].
    fn get(&self, pins: &Pins, context: &Context, key: &str) -> Result<Option<Row>, GetError>;
}

/// How rows of one keyed map are decoded.
pub(super) struct Codec<K: 'static, V: 'static> {
    pub(super) spec: Spec<K, V>,
    pub(super) about: &'static str,
    pub(super) key_help: &'static str,
    pub(super) example: &'static str,
    pub(super) parse: fn(&str, &Context) -> Result<K, String>,
    /// What `parse` reads.
    pub(super) text: fn(&K) -> String,
    pub(super) key: fn(&K, &Context) -> Record,
    pub(super) value: fn(&V, &Context) -> Record,
    /// Whether somebody uses the row: rows of a hash are, of an array not all.
    pub(super) used: fn(&V) -> bool,
    pub(super) find: Find<K, V>,
}

/// How the row of a key is looked for.
type Find<K, V> = fn(&Table<K, V>, &K) -> Result<Option<(K, V)>, MapError>;

/// The row of exactly this key.
pub(super) fn exact<K: Pod, V: Pod>(table: &Table<K, V>, key: &K) -> Result<Option<(K, V)>, MapError> {
    // Arrays have no row beyond their end; the kernel says ENOENT for it as well.
    Ok(table.get(key)?.map(|value| (*key, value)))
}

impl<K: Pod + Ord, V: Pod> Codec<K, V> {
    pub(super) fn row(&self, key: &K, value: &V, context: &Context) -> Row {
        Row { text: (self.text)(key), key: (self.key)(key, context), value: (self.value)(value, context) }
    }
}

impl<K: Pod + Ord, V: Pod> MapView for Codec<K, V> {
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
        let mut used = 0;
        self.spec.open(pins, Access::ReadOnly)?.each_batch(|_, values| {
            used += values.iter().filter(|value| (self.used)(value)).count();
            Ok(())
        })?;
        Ok(u32::try_from(used).unwrap_or(u32::MAX))
    }

    fn rows(&'static self, pins: &Pins, all: bool) -> Result<Box<dyn Rows>, MapError> {
        let mut rows = Vec::new();
        self.spec.open(pins, Access::ReadOnly)?.each_batch(|keys, values| {
            let pairs = keys.iter().copied().zip(values.iter().copied());
            rows.extend(pairs.filter(|(_, value)| all || (self.used)(value)));
            Ok(())
        })?;
        rows.sort_unstable_by_key(|(key, _)| *key);
        Ok(Box::new(Keyed { codec: self, rows }))
    }

    fn get(&self, pins: &Pins, context: &Context, key: &str) -> Result<Option<Row>, GetError> {
        let key = (self.parse)(key.trim(), context).map_err(|why| KeyError::new(self, why))?;
        let table = self.spec.open(pins, Access::ReadOnly)?;
        Ok((self.find)(&table, &key)?.map(|(key, value)| self.row(&key, &value, context)))
    }
}

struct Keyed<K: 'static, V: 'static> {
    codec: &'static Codec<K, V>,
    rows: Vec<(K, V)>,
}

impl<K: Pod + Ord, V: Pod> Rows for Keyed<K, V> {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn row(&self, index: usize, context: &Context) -> Option<Row> {
        self.rows.get(index).map(|(key, value)| self.codec.row(key, value, context))
    }
}

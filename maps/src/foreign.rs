//! Rows of another layout whose rows begin as ours do, or are the beginning of ours ([`crate::Standing::is_next_to_ours`] says so): read as ours, fields
//! that they lack zero, fields that we do not know left out. Only to move flows and rows between layouts.

use std::{marker::PhantomData, os::fd::AsFd as _};

use aya::{Pod, maps::MapData};

use crate::{
    Access, MapError, Pins, Spec,
    batches::batches,
    sys,
    table::{info, open},
};

/// A map of another layout, opened to be read.
#[derive(Debug)]
pub struct Foreign<K, V> {
    name: &'static str,
    map: MapData,
    rows: u32,
    value_size: usize,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Pod, V: Pod> Spec<K, V> {
    /// Opens the map of this name in the folder of another layout.
    ///
    /// # Errors
    /// It is missing, not to be opened, or has keys of another size.
    pub fn open_foreign(&self, pins: &Pins) -> Result<Foreign<K, V>, MapError> {
        let path = pins.map(self.name);
        let map = open(&path, Access::ReadOnly)?;
        let info = info(&map, &path)?;
        let (found, expected) = (u64::from(info.key_size()), size_of::<K>() as u64);
        if found != expected {
            return Err(MapError::Shape { path, property: "key size", found, expected });
        }
        let (rows, value_size) = (info.max_entries(), info.value_size() as usize);
        Ok(Foreign { name: self.name, map, rows, value_size, types: PhantomData })
    }
}

impl<K: Pod, V: Pod> Foreign<K, V> {
    /// Rows the map takes.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.rows
    }

    /// The row of a key.
    ///
    /// # Errors
    /// The kernel's.
    pub fn get(&self, key: &K) -> Result<Option<V>, MapError> {
        let mut value = vec![0_u8; self.value_size];
        let found = sys::lookup(self.map.fd().as_fd(), key, &mut value);
        let found = found.map_err(|source| MapError::Call { call: "lookup", map: self.name, source })?;
        Ok(found.then(|| sys::beginning(&value)))
    }

    /// All rows, some at a time, as [`crate::Table::each_batch`].
    ///
    /// # Errors
    /// The kernel's, or the first that `each` returns.
    pub fn each_batch(&self, mut each: impl FnMut(&[(K, V)]) -> Result<(), MapError>) -> Result<(), MapError> {
        let error = |call, source| MapError::Call { call, map: self.name, source };
        batches(self.map.fd().as_fd(), self.rows, self.value_size, error, |keys: &[K], values: &[u8]| {
            let values = values.chunks_exact(self.value_size).map(sys::beginning::<V>);
            each(&keys.iter().copied().zip(values).collect::<Vec<_>>())
        })
    }
}

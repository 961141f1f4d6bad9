//! A keyed map (hash, LRU, LPM, array), opened from its pin: single rows, and all rows in batches.
//!
//! Invariant: the sizes of key and value were compared with the kernel's when it was opened, so every buffer below fits.

use std::{
    collections::BTreeMap,
    io,
    marker::PhantomData,
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
};

use aya::{Pod, maps::MapData};

use crate::{
    MapError, Pins,
    batches::{BATCH, batches},
    sys,
};

/// How a pin is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Only to look.
    ReadOnly,
    /// The agent.
    ReadWrite,
}

/// Name and types of a map of [`osmia_ebpf::layout::maps`].
#[derive(Debug)]
pub struct Spec<K, V> {
    /// Name of the pin.
    pub name: &'static str,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Pod, V: Pod> Spec<K, V> {
    /// A map.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// Opens the pin.
    ///
    /// # Errors
    /// It is missing, not to be opened, or of another shape.
    pub fn open(&self, pins: &Pins, access: Access) -> Result<Table<K, V>, MapError> {
        let path = pins.map(self.name);
        let map = open(&path, access)?;
        check(&map, &path, size_of::<K>(), size_of::<V>())?;
        let rows = info(&map, &path)?.max_entries();
        Ok(Table { name: self.name, map, rows, types: PhantomData })
    }
}

pub(crate) fn open(path: &Path, access: Access) -> Result<MapData, MapError> {
    let fd = sys::obj_get(path, access == Access::ReadOnly).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => MapError::Missing { path: path.to_owned() },
        _ => MapError::Open { path: path.to_owned(), source },
    })?;
    MapData::from_fd(fd).map_err(|e| MapError::Open { path: path.to_owned(), source: io::Error::other(e) })
}

pub(crate) fn check(map: &MapData, path: &Path, key: usize, value: usize) -> Result<(), MapError> {
    let info = info(map, path)?;
    let sizes = [("key size", info.key_size(), key), ("value size", info.value_size(), value)];
    for (property, found, expected) in sizes {
        let (found, expected) = (u64::from(found), expected as u64);
        if found != expected {
            return Err(MapError::Shape { path: path.to_owned(), property, found, expected });
        }
    }
    Ok(())
}

pub(crate) fn info(map: &MapData, path: &Path) -> Result<aya::maps::MapInfo, MapError> {
    map.info().map_err(|e| MapError::Open { path: path.to_owned(), source: io::Error::other(e) })
}

/// An open map.
#[derive(Debug)]
pub struct Table<K, V> {
    name: &'static str,
    map: MapData,
    rows: u32,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Pod, V: Pod> Table<K, V> {
    /// Rows the map takes.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.rows
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd().as_fd()
    }

    fn error(&self, call: &'static str, source: io::Error) -> MapError {
        match source.raw_os_error() {
            // E2BIG: hash; ENOSPC: LPM.
            Some(libc::E2BIG | libc::ENOSPC) if call == "update" => MapError::Full { map: self.name, rows: self.rows },
            _ => MapError::Call { call, map: self.name, source },
        }
    }

    /// The row of a key. An LPM map gives the longest prefix that covers the key's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn get(&self, key: &K) -> Result<Option<V>, MapError> {
        let mut value = [sys::zeroed::<V>()];
        let found = sys::lookup(self.fd(), key, &mut value).map_err(|e| self.error("lookup", e))?;
        let [value] = value;
        Ok(found.then_some(value))
    }

    /// Writes a row.
    ///
    /// # Errors
    /// [`MapError::Full`], or the kernel's.
    pub fn put(&self, key: &K, value: &V) -> Result<(), MapError> {
        sys::update(self.fd(), key, std::slice::from_ref(value)).map_err(|e| self.error("update", e))
    }

    /// Removes a row; false if it was not there.
    ///
    /// # Errors
    /// The kernel's; arrays refuse.
    pub fn remove(&self, key: &K) -> Result<bool, MapError> {
        sys::delete(self.fd(), key).map_err(|e| self.error("delete", e))
    }

    /// All rows. Not a snapshot: rows that change meanwhile are there once, twice or not at all.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rows(&self) -> Result<Vec<(K, V)>, MapError> {
        let mut rows = Vec::new();
        self.each_batch(|keys, values| {
            rows.extend(keys.iter().copied().zip(values.iter().copied()));
            Ok(())
        })?;
        Ok(rows)
    }

    /// All rows, some at a time: memory stays that of one batch however large the map is.
    ///
    /// # Errors
    /// The kernel's, or the first that `each` returns.
    pub fn each_batch(&self, each: impl FnMut(&[K], &[V]) -> Result<(), MapError>) -> Result<(), MapError> {
        batches(self.fd(), self.rows, 1, |call, source| self.error(call, source), each)
    }

    /// Writes rows, in batches where the kernel has them. Stops at the first that fails; those before it are written.
    ///
    /// # Errors
    /// [`MapError::Full`], or the kernel's.
    pub fn put_all(&self, rows: &[(K, V)]) -> Result<(), MapError> {
        for chunk in rows.chunks(BATCH) {
            let (keys, values): (Vec<K>, Vec<V>) = chunk.iter().copied().unzip();
            let batch = sys::update_batch(self.fd(), &keys, &values);
            if batch.end.is_ok() {
                continue;
            }
            // Whatever the reason, the rest one by one: the kernel knows no batch, or the single call names what is wrong.
            for (key, value) in chunk.get(batch.done.min(chunk.len())..).unwrap_or_default() {
                self.put(key, value)?;
            }
        }
        Ok(())
    }

    /// Removes rows, in batches where the kernel has them; those that are not there are skipped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_all(&self, keys: &[K]) -> Result<(), MapError> {
        for chunk in keys.chunks(BATCH) {
            let batch = sys::delete_batch(self.fd(), chunk);
            if batch.end.is_ok() {
                continue;
            }
            for key in chunk.get(batch.done.min(chunk.len())..).unwrap_or_default() {
                self.remove(key)?;
            }
        }
        Ok(())
    }
}

impl<K: Pod + Ord, V: Pod> Table<K, V> {
    /// All rows by key.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dump(&self) -> Result<BTreeMap<K, V>, MapError> {
        Ok(self.rows()?.into_iter().collect())
    }
}

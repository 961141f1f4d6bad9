//! Per-CPU arrays: the counters.

use std::{io, marker::PhantomData, os::fd::AsFd as _};

use aya::{Pod, maps::MapData};
use osmia_ebpf::layout::drops::DropCount;

use crate::{
    Access, MapError, Pins, sys,
    table::{check, info, open},
};

/// A value that is summed over CPUs.
pub trait Sum: Pod {
    /// Nothing counted.
    const ZERO: Self;
    /// Both together; counters wrap.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

impl Sum for u64 {
    const ZERO: Self = 0;

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl Sum for DropCount {
    const ZERO: Self = Self { packets: 0, bytes: 0 };

    fn plus(self, other: Self) -> Self {
        Self { packets: self.packets.wrapping_add(other.packets), bytes: self.bytes.wrapping_add(other.bytes) }
    }
}

/// Name and type of a per-CPU array of [`osmia_ebpf::layout::maps`].
#[derive(Debug)]
pub struct PerCpuSpec<V> {
    /// Name of the pin.
    pub name: &'static str,
    types: PhantomData<fn() -> V>,
}

impl<V: Sum> PerCpuSpec<V> {
    /// A map. The value's size is a multiple of 8, since the kernel rounds it up to that on the way to user space.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        assert!(size_of::<V>().is_multiple_of(8));
        Self { name, types: PhantomData }
    }

    /// Opens the pin.
    ///
    /// # Errors
    /// It is missing, not to be opened, or of another shape.
    pub fn open(&self, pins: &Pins, access: Access) -> Result<PerCpu<V>, MapError> {
        let path = pins.map(self.name);
        let map = open(&path, access)?;
        check(&map, &path, size_of::<u32>(), size_of::<V>())?;
        let rows = info(&map, &path)?.max_entries();
        let cpus = aya::util::nr_cpus().map_err(|(file, source)| MapError::Open { path: file.into(), source })?;
        Ok(PerCpu { name: self.name, map, rows, cpus: cpus.get() as usize, types: PhantomData })
    }
}

/// An open per-CPU array.
#[derive(Debug)]
pub struct PerCpu<V> {
    name: &'static str,
    map: MapData,
    rows: u32,
    cpus: usize,
    types: PhantomData<fn() -> V>,
}

impl<V: Sum> PerCpu<V> {
    /// A row's values, one a possible CPU.
    ///
    /// # Errors
    /// The kernel's; an index beyond the map is one.
    pub fn values(&self, index: u32) -> Result<Vec<V>, MapError> {
        let mut values = vec![V::ZERO; self.cpus];
        let error = |source| MapError::Call { call: "lookup", map: self.name, source };
        match sys::lookup(self.map.fd().as_fd(), &index, &mut values) {
            Ok(true) => Ok(values),
            Ok(false) => Err(error(io::ErrorKind::NotFound.into())),
            Err(source) => Err(error(source)),
        }
    }

    /// Writes a row's values, one a possible CPU.
    ///
    /// # Errors
    /// The kernel's; another number of values is one.
    pub fn put(&self, index: u32, values: &[V]) -> Result<(), MapError> {
        let error = |source| MapError::Call { call: "update", map: self.name, source };
        if values.len() != self.cpus {
            return Err(error(io::ErrorKind::InvalidInput.into()));
        }
        sys::update(self.map.fd().as_fd(), &index, values).map_err(error)
    }

    /// Rows the map has.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.rows
    }

    /// All rows, each summed over the CPUs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sums(&self) -> Result<Vec<V>, MapError> {
        (0..self.rows).map(|i| Ok(self.values(i)?.into_iter().fold(V::ZERO, Sum::plus))).collect()
    }
}

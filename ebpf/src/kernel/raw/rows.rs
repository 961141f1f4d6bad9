//! Rows of maps.
//!
//! The kernel may recycle a deleted hash row while a program still holds it: what is read then is another row of the same map, never
//! foreign memory, and a flow's reader compares nothing it has not looked up by key a moment before.

use core::ops::Deref;
use core::ptr::copy_nonoverlapping;

use osmia_ebpf::layout::FlowEntry;
use osmia_ebpf::logic::tables::{Entry, FlowRef};

/// A row to read.
#[inline(always)]
pub(in crate::kernel) fn row<'a, T>(found: Option<*const T>) -> Option<&'a T> {
    // SAFETY: a pointer that a lookup gave stays readable for the run of the program.
    found.map(|p| unsafe { &*p })
}

/// A row to write: of a per-CPU map, or one of which each field is stored by itself.
#[inline(always)]
pub(in crate::kernel) fn row_mut<'a, T>(found: Option<*mut T>) -> Option<&'a mut T> {
    // SAFETY: as `row`; programs on a CPU do not interrupt each other on one hook, and nobody else holds a reference to it.
    found.map(|p| unsafe { &mut *p })
}

/// A row's value.
#[inline(always)]
pub(in crate::kernel) fn copied<T: Copy>(found: Option<*const T>) -> Option<T> {
    // SAFETY: as `row`.
    found.map(|p| unsafe { *p })
}

/// Adds to a number in a per-CPU map.
#[inline(always)]
pub(in crate::kernel) fn bump(found: Option<*mut u64>, by: u64) {
    if let Some(p) = found {
        // SAFETY: as `row_mut`.
        unsafe { *p = (*p).wrapping_add(by) }
    }
}

/// A flow's entry in its table.
#[derive(Clone, Copy)]
pub(crate) struct Flow(*mut FlowEntry);

/// The handle of a looked up entry.
#[inline(always)]
pub(in crate::kernel) fn flow(found: Option<*mut FlowEntry>) -> Option<Flow> {
    found.map(Flow)
}

impl Entry for Flow {
    #[inline(always)]
    fn view(self) -> impl Deref<Target = FlowEntry> {
        // SAFETY: as `row`.
        unsafe { &*self.0 }
    }

    #[inline(always)]
    fn get<R>(self, read: impl FnOnce(&FlowEntry) -> R) -> R {
        // SAFETY: as `row`.
        read(unsafe { &*self.0 })
    }
}

impl FlowRef for Flow {
    #[inline(always)]
    fn set(self, change: impl FnOnce(&mut FlowEntry)) {
        // SAFETY: the reference lives for the closure alone, which stores fields.
        change(unsafe { &mut *self.0 });
    }

    #[inline(always)]
    fn copy(self, into: &mut FlowEntry) {
        // SAFETY: two different maps. Known not to overlap, this is 16 loads and stores, not a loop over bytes.
        unsafe { copy_nonoverlapping(self.0.cast_const(), into, 1) }
    }
}

//! Access to the maps. The kernel half implements it over BPF maps, the tests over `BTreeMap`s.
//!
//! Invariant: everything takes `&self`, since the maps are shared between CPUs and with the agent; a row may change between two reads of it.

use core::ops::Deref;

use crate::layout::{
    Addr, Config, Endpoint, FlowEntry, FlowKey4, FlowKey6, FragmentKey, FragmentRow, Node, Route, Stat, Uplink,
    VerdictKey, VerdictRow,
};

/// The two tables of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Table {
    /// LRU: flows that have not proved themselves.
    Probation,
    /// Preallocated: flows that a flood can not push out.
    Established,
}

/// How an entry is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Insert {
    /// Whether it is there or not.
    Any,
    /// Only where there is none.
    New,
}

/// Why an entry was not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertError {
    /// [`Insert::New`], and there is one.
    Exists,
    /// The table is full, or busy.
    Full,
}

/// What can be read of a flow's entry, wherever it lies.
pub trait Entry: Copy {
    /// Reads of it: a field, or something made of several.
    fn get<R>(self, read: impl FnOnce(&FlowEntry) -> R) -> R;
    /// All of it to read, for a moment. What is large is not made a closure for [`Entry::get`]: in a BPF program that would be a function.
    fn view(self) -> impl Deref<Target = FlowEntry>;
}

impl Entry for &FlowEntry {
    #[inline(always)]
    fn view(self) -> impl Deref<Target = FlowEntry> {
        self
    }

    #[inline(always)]
    fn get<R>(self, read: impl FnOnce(&FlowEntry) -> R) -> R {
        read(self)
    }
}

/// An entry in its table: other CPUs see each change at once.
pub trait FlowRef: Entry {
    /// Changes it. Fields are stored one by one; two CPUs that change the same field leave one of the two values.
    fn set(self, change: impl FnOnce(&mut FlowEntry));
    /// Copies all of it.
    fn copy(self, into: &mut FlowEntry);
}

/// The tables that policy asks. Apart, so that `osmia explain` asks the pinned maps by the programs' own lookup.
pub trait PolicyTables {
    /// Class of an address that is another one than its range.
    fn peer(&self, addr: &Addr) -> Option<u32>;
    /// Class of the longest range of an address.
    fn peer_block(&self, addr: &Addr) -> Option<u32>;
    /// The row of this very key.
    fn verdict(&self, key: &VerdictKey) -> Option<VerdictRow>;
}

/// The tables a packet may ask.
pub trait Tables: PolicyTables {
    /// An entry in place.
    type Flow: FlowRef;

    /// The one skb mark bit we own ("handled"): a constant that the loader sets.
    fn mark(&self) -> u32;
    /// Ticks a second: a constant that the loader sets; see [`crate::layout::meta`].
    fn ticks_per_second(&self) -> u32;
    /// The running configuration.
    fn config(&self) -> Option<&Config>;
    /// Row of the epochs array: 0 the route generation, else an endpoint's epoch. 0 for a slot that can not be.
    fn epoch(&self, slot: u32) -> u32;
    /// Endpoint slot by host-side ifindex.
    fn slot_by_ifindex(&self, ifindex: u32) -> Option<u32>;
    /// Endpoint slot by address.
    fn slot_by_addr(&self, addr: &Addr) -> Option<u32>;
    /// Endpoint by slot; `None` for a free slot.
    fn endpoint(&self, slot: u32) -> Option<&Endpoint>;
    /// Longest prefix of an address.
    fn route(&self, addr: &Addr) -> Option<Route>;
    /// Node by number; `None` for an unused row.
    fn node(&self, number: u16) -> Option<&Node>;
    /// Uplink by ifindex.
    fn uplink(&self, ifindex: u32) -> Option<&Uplink>;

    /// Entry of an IPv4 direction.
    fn flow4(&self, key: &FlowKey4, table: Table) -> Option<Self::Flow>;
    /// Entry of an IPv6 direction.
    fn flow6(&self, key: &FlowKey6, table: Table) -> Option<Self::Flow>;
    /// Writes an entry.
    fn put_flow4(&self, key: &FlowKey4, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError>;
    /// Writes an entry.
    fn put_flow6(&self, key: &FlowKey6, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError>;
    /// Removes an entry; that there is none is no error.
    fn remove_flow4(&self, key: &FlowKey4, table: Table);
    /// Removes an entry.
    fn remove_flow6(&self, key: &FlowKey6, table: Table);

    /// What the first fragment of a datagram told.
    fn fragment(&self, key: &FragmentKey) -> Option<FragmentRow>;
    /// Keeps what the first fragment told.
    fn put_fragment(&self, key: &FragmentKey, row: &FragmentRow);

    /// Established flows an endpoint has opened (low half of its budget).
    fn endpoint_flows(&self, slot: u32) -> u32;
    /// Sets it.
    fn set_endpoint_flows(&self, slot: u32, flows: u32);
    /// Packet-too-big bucket of an endpoint (high half of its budget); its meaning is the user's.
    fn bucket(&self, slot: u32) -> u32;
    /// Sets it.
    fn set_bucket(&self, slot: u32, bucket: u32);

    /// Keeps who sent the tunnel packet that was just unpacked, for the program that goes on with it ([`super::Scratch::outer`]).
    fn keep_outer(&self, outer: &Addr);

    /// Counts something done.
    fn count(&self, stat: Stat);
}

//! The two families behind one trait: everything after parsing is written once.

use super::tables::{Insert, InsertError, Table, Tables};
use crate::layout::flow::ZONE_LOOSE;
use crate::layout::{Addr, FlowEntry, FlowKey4, FlowKey6};

/// A flow key of either family.
pub trait FlowKey: Copy + Eq {
    /// Whether this is IPv6.
    const V6: bool;
    /// Bytes of the IP header without options or extension headers.
    const IP_LEN: usize;

    /// Source address.
    fn src(&self) -> Addr;
    /// Destination address.
    fn dst(&self) -> Addr;
    /// Source port, network order.
    fn sport(&self) -> [u8; 2];
    /// Destination port.
    fn dport(&self) -> [u8; 2];
    /// Protocol.
    fn proto(&self) -> u8;
    /// A key of its parts. The addresses must be of this family.
    fn of(src: &Addr, dst: &Addr, sport: [u8; 2], dport: [u8; 2], proto: u8) -> Self;
    /// The key of packets the other way that do not leave the stack by an uplink.
    fn swapped(&self) -> Self;
    /// The key of the opposite direction of the flow of which this is a direction with this entry.
    fn opposite(&self, entry: &FlowEntry) -> Self;
    /// The same in another zone.
    fn in_zone(&self, zone: u8) -> Self;

    /// Its entry.
    fn find<T: Tables>(&self, tables: &T, table: Table) -> Option<T::Flow>;
    /// Writes its entry.
    fn put<T: Tables>(&self, tables: &T, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError>;
    /// Removes its entry.
    fn remove<T: Tables>(&self, tables: &T, table: Table);
}

macro_rules! parts {
    () => {
        #[inline(always)]
        fn sport(&self) -> [u8; 2] {
            self.sport
        }

        #[inline(always)]
        fn dport(&self) -> [u8; 2] {
            self.dport
        }

        #[inline(always)]
        fn proto(&self) -> u8 {
            self.proto
        }

        #[inline(always)]
        fn swapped(&self) -> Self {
            Self { src: self.dst, dst: self.src, sport: self.dport, dport: self.sport, ..*self }
                .in_zone(self.zone & ZONE_LOOSE)
        }

        #[inline(always)]
        fn opposite(&self, entry: &FlowEntry) -> Self {
            Self::opposite(self, entry)
        }

        #[inline(always)]
        fn in_zone(&self, zone: u8) -> Self {
            Self { zone, ..*self }
        }
    };
}

impl FlowKey for FlowKey4 {
    const V6: bool = false;
    const IP_LEN: usize = 20;

    #[inline(always)]
    fn src(&self) -> Addr {
        Addr::v4(self.src)
    }

    #[inline(always)]
    fn dst(&self) -> Addr {
        Addr::v4(self.dst)
    }

    #[inline(always)]
    fn of(src: &Addr, dst: &Addr, sport: [u8; 2], dport: [u8; 2], proto: u8) -> Self {
        Self { src: src.to_v4(), dst: dst.to_v4(), sport, dport, proto, zone: 0, zero: [0; 2] }
    }

    parts!();

    #[inline(always)]
    fn find<T: Tables>(&self, tables: &T, table: Table) -> Option<T::Flow> {
        tables.flow4(self, table)
    }

    #[inline(always)]
    fn put<T: Tables>(&self, tables: &T, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError> {
        tables.put_flow4(self, entry, table, how)
    }

    #[inline(always)]
    fn remove<T: Tables>(&self, tables: &T, table: Table) {
        tables.remove_flow4(self, table);
    }
}

impl FlowKey for FlowKey6 {
    const V6: bool = true;
    const IP_LEN: usize = 40;

    #[inline(always)]
    fn src(&self) -> Addr {
        Addr::v6(self.src)
    }

    #[inline(always)]
    fn dst(&self) -> Addr {
        Addr::v6(self.dst)
    }

    #[inline(always)]
    fn of(src: &Addr, dst: &Addr, sport: [u8; 2], dport: [u8; 2], proto: u8) -> Self {
        Self { src: src.0, dst: dst.0, sport, dport, proto, zone: 0, zero: [0; 2] }
    }

    parts!();

    #[inline(always)]
    fn find<T: Tables>(&self, tables: &T, table: Table) -> Option<T::Flow> {
        tables.flow6(self, table)
    }

    #[inline(always)]
    fn put<T: Tables>(&self, tables: &T, entry: &FlowEntry, table: Table, how: Insert) -> Result<(), InsertError> {
        tables.put_flow6(self, entry, table, how)
    }

    #[inline(always)]
    fn remove<T: Tables>(&self, tables: &T, table: Table) {
        tables.remove_flow6(self, table);
    }
}

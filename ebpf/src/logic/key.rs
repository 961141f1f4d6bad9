//! The two families behind one trait: everything after parsing is written once.

use super::tables::{Insert, InsertError, Table, Tables};
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
    /// The key of packets the other way.
    fn swapped(&self) -> Self;
    /// The key of the opposite direction of a flow: what `entry` makes of this direction's packets, the other way.
    #[inline(always)]
    fn opposite(&self, entry: &FlowEntry) -> Self {
        self.rewritten(entry).swapped()
    }
    /// What `entry`'s rewrites make of it.
    fn rewritten(&self, entry: &FlowEntry) -> Self;

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
            Self { src: self.dst, dst: self.src, sport: self.dport, dport: self.sport, proto: self.proto, zero: [0; 3] }
        }

        #[inline(always)]
        fn rewritten(&self, entry: &FlowEntry) -> Self {
            use crate::layout::flow::{F_REWRITE_DST, F_REWRITE_SRC};
            let mut key = *self;
            if entry.flags & F_REWRITE_SRC != 0 {
                key = Self::of(&entry.new_src, &key.dst(), entry.new_sport, key.dport, key.proto);
            }
            if entry.flags & F_REWRITE_DST != 0 {
                key = Self::of(&key.src(), &entry.new_dst, key.sport, entry.new_dport, key.proto);
            }
            key
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
        Self { src: src.to_v4(), dst: dst.to_v4(), sport, dport, proto, zero: [0; 3] }
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
        Self { src: src.0, dst: dst.0, sport, dport, proto, zero: [0; 3] }
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

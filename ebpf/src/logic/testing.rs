//! Stand-ins for the kernel in native tests: a packet in a `Vec`, tables in `BTreeMap`s.

mod drive;
mod packet;
mod policy;
mod tables;
mod verify;

pub(crate) use drive::{drive, drive_from, drive_with};
pub(crate) use packet::{FakePacket, build};
pub(crate) use policy::{allow_loose, verdict};
pub(crate) use tables::{FakeTables, node_row, pod6};
pub(crate) use verify::verify;

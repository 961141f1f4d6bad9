//! Refusals, as the runtime sees them. Codes below 100 are the specification's.

use std::fmt::Display;

use osmia_cni::{protocol::Failure, spec::error::code};

use super::{journal::JournalError, record::Record};
use crate::addresses::NoAddress;

/// No address or slot can be had.
pub const EXHAUSTED: u32 = 103;
/// The journal cannot be written.
pub const JOURNAL: u32 = 104;
/// The maps or programs refused.
pub const DATAPLANE: u32 = 105;

pub(super) fn journal(error: &JournalError) -> Failure {
    Failure::new(JOURNAL, error.to_string())
}

pub(super) fn no_address(error: &NoAddress) -> Failure {
    match error {
        NoAddress::NoRange(_) => Failure::new(code::TRY_LATER, error.to_string()),
        NoAddress::Exhausted { .. } => Failure::new(EXHAUSTED, error.to_string()),
    }
}

pub(super) fn no_slot(slots: usize) -> Failure {
    Failure::new(EXHAUSTED, format!("this node has its {slots} pods: no endpoint slot is free"))
}

pub(super) fn dataplane(what: &str, error: &anyhow::Error) -> Failure {
    Failure::new(DATAPLANE, format!("{what}: {error:#}"))
}

pub(super) fn unseen(error: &anyhow::Error) -> Failure {
    Failure::new(code::TRY_LATER, format!("{error:#}"))
}

pub(super) fn exists(record: &Record) -> Failure {
    let text =
        format!("{} exists already with {}: DEL comes before another ADD", record.name(), list(&record.addresses));
    Failure::new(code::EXISTS, text)
}

pub(super) fn busy(record: &Record) -> Failure {
    Failure::new(code::TRY_LATER, format!("another ADD of {} is being served", record.name()))
}

pub(super) fn overtaken(name: &dyn Display) -> Failure {
    Failure::new(code::TRY_LATER, format!("a DEL of {name} came after this ADD had started"))
}

pub(super) fn not_reserved(name: &dyn Display) -> Failure {
    Failure::new(code::TRY_LATER, format!("{name} is not reserved (any more): a DEL or its deadline came first"))
}

pub(super) fn differs(text: String) -> Failure {
    Failure::new(code::DIFFERS, text)
}

fn list(items: &[std::net::IpAddr]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

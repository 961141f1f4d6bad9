//! What attachments need from the rest of the node; tests have their own.

use std::collections::BTreeMap;

use anyhow::Result;
use osmia_maps::layout::Endpoint;

use crate::compile::policy::Local;

/// Endpoint rows and programs.
pub trait Endpoints: Send {
    /// Attaches the programs, then writes the rows, the endpoint's with the rule sets of this pod. In force
    /// when it returns.
    ///
    /// # Errors
    /// The link is gone, or a map or the catalogue refused.
    fn put(&mut self, slot: u32, endpoint: Endpoint, local: Local) -> Result<()>;

    /// Attaches the programs to a link without a row: no packet passes it.
    ///
    /// # Errors
    /// The link is gone, or the kernel refused.
    fn guard(&mut self, ifindex: u32) -> Result<()>;

    /// Whether the source has not told of this pod yet and its policies depend on what it will tell.
    fn awaits(&self, local: &Local) -> bool;

    /// Removes the rows and raises the slot's epoch; an empty slot is fine. When it returns no packet passes.
    ///
    /// # Errors
    /// A map refused.
    fn remove(&mut self, slot: u32) -> Result<()>;

    /// The rows that are there.
    ///
    /// # Errors
    /// A map refused.
    fn list(&self) -> Result<BTreeMap<u32, Endpoint>>;

    /// Whether rows and programs are there as they ought to be; says what is missing.
    ///
    /// # Errors
    /// What is missing, or a map refused.
    fn check(&self, slot: u32, endpoint: &Endpoint) -> Result<()>;
}

/// Host-side links of ours.
pub trait Links: Send {
    /// Ifindex and name of each.
    ///
    /// # Errors
    /// netlink.
    fn list(&self) -> Result<BTreeMap<u32, String>>;

    /// Ifindex of a name; `None` if there is no such link.
    ///
    /// # Errors
    /// The kernel could not be asked, which says nothing about the link.
    fn index_of(&self, name: &str) -> Result<Option<u32>>;

    /// Deletes soon, together with others.
    fn retire(&self, ifindex: u32);

    /// Deletes now; one that is gone is fine.
    ///
    /// # Errors
    /// netlink.
    fn delete(&self, ifindex: u32) -> Result<()>;
}

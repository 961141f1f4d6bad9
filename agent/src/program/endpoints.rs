//! Rows and programs of one endpoint. The caller owns the slots: one at a time for each.

use std::{collections::BTreeMap, net::IpAddr};

use osmia_maps::layout::{Addr, Endpoint, endpoint::E_PRESENT};
use tracing::warn;

use super::{ApplyError, Dataplane, Expedited, links, load};

impl Dataplane {
    /// Puts an endpoint's programs on its link and its rows into the maps; replaces what the slot held. In force when this returns.
    ///
    /// The programs come first: without a row they drop everything, so there is no moment at which the pod is unguarded.
    ///
    /// # Errors
    /// The link is gone, a map is full, or the slot does not exist.
    pub fn put_endpoint(&mut self, slot: u32, endpoint: Endpoint) -> Result<(), ApplyError> {
        self.check_slot(slot)?;
        self.guard_endpoint(endpoint.ifindex)?;
        let row = Endpoint { flags: endpoint.flags | E_PRESENT, ..endpoint };
        let before = self.tables.endpoints.get(&slot)?.filter(|old| old.flags & E_PRESENT != 0);
        if let Some(old) = before {
            self.forget_keys(slot, &old, Some(&row))?;
        }
        self.tables.endpoints.put(&slot, &row)?;
        self.tables.raise(slot)?;
        for addr in addresses(&row) {
            if let Some(other) = self.tables.endpoint_addr.get(&addr)?.filter(|&other| other != slot) {
                warn!(slot, other, "an address moves from another slot");
            }
            self.tables.endpoint_addr.put(&addr, &slot)?;
        }
        self.tables.endpoint_if.put(&row.ifindex, &slot)?;
        Ok(())
    }

    /// Puts an endpoint's programs on its link alone: without rows they drop everything.
    ///
    /// # Errors
    /// The link is gone, or the kernel's.
    pub fn guard_endpoint(&mut self, ifindex: u32) -> Result<(), ApplyError> {
        let _short = self.links.tcx().then(Expedited::begin);
        for place in links::endpoint(ifindex) {
            self.links.attach(&mut self.ebpf, place)?;
        }
        Ok(())
    }

    /// Removes an endpoint's rows; false if the slot was empty. When this returns, no packet passes from or to it: entries of its flows
    /// are stale, and its link, if it is still there, has programs that find no endpoint.
    ///
    /// The programs stay until the device goes, since a link without them would let the pod reach the node's stack unguarded;
    /// [`Dataplane::collect_links`] then removes the pins.
    ///
    /// # Errors
    /// The kernel's, or the slot does not exist.
    pub fn remove_endpoint(&mut self, slot: u32) -> Result<bool, ApplyError> {
        self.check_slot(slot)?;
        let Some(old) = self.tables.endpoints.get(&slot)?.filter(|old| old.flags & E_PRESENT != 0) else {
            return Ok(false);
        };
        self.forget_keys(slot, &old, None)?;
        self.tables.endpoints.put(&slot, &Endpoint::default())?;
        self.tables.raise(slot)?;
        self.tables.budgets.put(&slot, &0)?;
        Ok(true)
    }

    /// The endpoints in the maps, by slot.
    ///
    /// # Errors
    /// The kernel's.
    pub fn endpoints(&self) -> Result<BTreeMap<u32, Endpoint>, ApplyError> {
        let rows = self.tables.endpoints.rows()?;
        Ok(rows.into_iter().filter(|(_, endpoint)| endpoint.flags & E_PRESENT != 0).collect())
    }

    /// What of an endpoint is not as it was put: each row that is missing or another, each hook that does not run this start's program.
    /// Looks at nothing but this endpoint's rows and hooks. Rule sets are not compared, they are changed by others.
    ///
    /// # Errors
    /// The kernel's, or the slot does not exist.
    pub fn check_endpoint(&self, slot: u32, wanted: &Endpoint) -> Result<Vec<String>, ApplyError> {
        self.check_slot(slot)?;
        let mut wrong = Vec::new();
        let row = self.tables.endpoints.get(&slot)?.unwrap_or_default();
        if row.flags & E_PRESENT == 0 {
            wrong.push(format!("map endpoints has no row {slot} for it"));
        } else if !is_same(&row, wanted) {
            wrong.push(format!("row {slot} of map endpoints is another: {row:?}"));
        }
        for addr in addresses(wanted) {
            let ip = IpAddr::from(addr.0).to_canonical();
            match self.tables.endpoint_addr.get(&addr)? {
                Some(found) if found == slot => {}
                Some(found) => wrong.push(format!("row {ip} of map endpoint_addr leads to {found}, not to {slot}")),
                None => wrong.push(format!("map endpoint_addr has no row for {ip}")),
            }
        }
        match self.tables.endpoint_if.get(&wanted.ifindex)? {
            Some(found) if found == slot => {}
            Some(found) => {
                wrong.push(format!("row {} of map endpoint_if leads to {found}, not to {slot}", wanted.ifindex));
            }
            None => wrong.push(format!("map endpoint_if has no row for its link {}", wanted.ifindex)),
        }
        for place in links::endpoint(wanted.ifindex) {
            let own = load::id(&self.ebpf, place.program)?;
            match self.links.runs(place)? {
                Some(found) if found == own => {}
                Some(found) => wrong
                    .push(format!("its host link runs program {found}, not this agent's {} ({own})", place.program)),
                None => wrong.push(format!("program {} is not on its host link", place.program)),
            }
        }
        Ok(wrong)
    }

    /// Removes rows by address or ifindex that lead to a slot which is empty or another's, and puts those that are missing: what a
    /// killed agent left between two calls. Says how many.
    ///
    /// # Errors
    /// The kernel's.
    pub fn repair_endpoint_keys(&mut self) -> Result<usize, ApplyError> {
        let endpoints = self.endpoints()?;
        let mut stray_addr = Vec::new();
        for (addr, slot) in self.tables.endpoint_addr.rows()? {
            if endpoints.get(&slot).is_none_or(|e| !addresses(e).any(|own| own == addr)) {
                stray_addr.push(addr);
            }
        }
        let mut stray_if = Vec::new();
        for (ifindex, slot) in self.tables.endpoint_if.rows()? {
            if endpoints.get(&slot).is_none_or(|e| e.ifindex != ifindex) {
                stray_if.push(ifindex);
            }
        }
        self.tables.endpoint_addr.remove_all(&stray_addr)?;
        self.tables.endpoint_if.remove_all(&stray_if)?;
        let mut missing = 0;
        for (slot, endpoint) in &endpoints {
            for addr in addresses(endpoint) {
                if self.tables.endpoint_addr.get(&addr)?.is_none() {
                    self.tables.endpoint_addr.put(&addr, slot)?;
                    missing += 1;
                }
            }
            if self.tables.endpoint_if.get(&endpoint.ifindex)?.is_none() {
                self.tables.endpoint_if.put(&endpoint.ifindex, slot)?;
                missing += 1;
            }
        }
        Ok(stray_addr.len() + stray_if.len() + missing)
    }

    /// Removes the keys of `old` that lead to the slot and that `new` does not have.
    fn forget_keys(&self, slot: u32, old: &Endpoint, new: Option<&Endpoint>) -> Result<(), ApplyError> {
        for addr in addresses(old) {
            let stays = new.is_some_and(|new| addresses(new).any(|own| own == addr));
            if !stays && self.tables.endpoint_addr.get(&addr)? == Some(slot) {
                self.tables.endpoint_addr.remove(&addr)?;
            }
        }
        let stays = new.is_some_and(|new| new.ifindex == old.ifindex);
        if !stays && self.tables.endpoint_if.get(&old.ifindex)? == Some(slot) {
            self.tables.endpoint_if.remove(&old.ifindex)?;
        }
        Ok(())
    }

    fn check_slot(&self, slot: u32) -> Result<(), ApplyError> {
        let last = self.tables.endpoints.capacity() - 1;
        if (1..=last).contains(&slot) { Ok(()) } else { Err(ApplyError::Slot { slot, last }) }
    }
}

/// Whether a row is this endpoint's, whatever its rule sets are.
#[must_use]
pub fn is_same(row: &Endpoint, wanted: &Endpoint) -> bool {
    let Endpoint { egress_rules, ingress_rules, .. } = *row;
    *row == Endpoint { egress_rules, ingress_rules, flags: wanted.flags | E_PRESENT, ..*wanted }
}

fn addresses(endpoint: &Endpoint) -> impl Iterator<Item = Addr> {
    let v4 = (endpoint.v4 != [0; 4]).then(|| Addr::v4(endpoint.v4));
    let v6 = (endpoint.v6 != [0; 16]).then(|| Addr::v6(endpoint.v6));
    v4.into_iter().chain(v6)
}

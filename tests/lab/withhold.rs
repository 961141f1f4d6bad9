//! Takes away what an agent wrote, for the twins of the demo: the pod is built and attached, the rows about it are missing.

use std::path::Path;

use anyhow::{Context, Result, bail};
use aya::Pod as Bytes;
use aya::maps::{HashMap, Map, MapData};
use osmia_maps::layout::{Addr, maps};
use osmia_maps::pins::Pins;

use crate::node::Node;
use crate::world::Pod;

impl Node {
    /// Removes the rows that lead from this pod's link and addresses to its endpoint. The agent's next start brings them back.
    ///
    /// # Errors
    /// There are no such rows, or no such maps.
    pub fn withhold(&self, pod: &Pod) -> Result<()> {
        let pins = Pins::new(&self.paths.bpffs);
        let addresses = [pod.v4.map(|a| Addr::v4(a.octets())), pod.v6.map(|a| Addr::v6(a.octets()))];
        self.space.run(|| {
            let mut by_address = open::<Addr>(&pins.map(maps::ENDPOINT_ADDR))?;
            let mut by_link = open::<u32>(&pins.map(maps::ENDPOINT_IF))?;
            let mut slots = Vec::new();
            for address in addresses.into_iter().flatten() {
                slots.push(by_address.get(&address, 0).context("find the endpoint")?);
                by_address.remove(&address).context("withhold the address")?;
            }
            let rows = by_link.iter().collect::<Result<Vec<_>, _>>().context("read the endpoints by link")?;
            let links: Vec<_> = rows.iter().filter(|(_, slot)| slots.contains(slot)).collect();
            let [(link, _)] = links.as_slice() else {
                bail!("pod {} has {} rows by link on {}", pod.name, links.len(), self.name);
            };
            by_link.remove(link).context("withhold the link")
        })?
    }
}

fn open<K: Bytes>(pin: &Path) -> Result<HashMap<MapData, K, u32>> {
    let open = || HashMap::try_from(Map::HashMap(MapData::from_pin(pin)?));
    open().with_context(|| format!("open {}", pin.display()))
}

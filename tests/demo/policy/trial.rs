//! What one pod sends to another, and what its receiver says of it.

use osmia_lab::{Pod, Probe, Proto, Server};

use crate::packets::{ARRIVES, STAYS_AWAY};

/// One pod sends to another.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) from: &'a Pod,
    pub(super) to: &'a Pod,
    pub(super) what: What<'a>,
}

/// What it sends.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    /// A probe, to any port; its answer has to come back.
    Any(Proto),
    /// A number, to a server on its port.
    To(&'a Server),
}

impl Trial<'_> {
    /// Whether it is as expected: arrives, or stays away.
    pub(super) fn judge(&self, v6: bool, arrives: bool) -> Result<(), String> {
        let (from, to) = (self.from, self.to);
        let error = |err: anyhow::Error| format!("{}: {err:#}", self.name());
        let destination = to.address(v6).map_err(error)?;
        let peer = from.address(v6).map_err(error)?;
        match self.what {
            What::Any(proto) => {
                let patience = if arrives { ARRIVES } else { STAYS_AWAY };
                let probe = Probe { proto, from: &from.space, to: &to.space, destination, patience };
                let arrival = probe.run().map_err(error)?;
                match arrives {
                    true => arrival.complete(peer).map_err(|why| format!("{}: {why}", self.name())),
                    false if arrival.nothing_from(peer) => Ok(()),
                    false => Err(self.arrived()),
                }
            }
            What::To(server) => match (server.hears(&from.space, destination, arrives).map_err(error)?, arrives) {
                (true, false) => Err(self.arrived()),
                (false, true) => Err(format!("{}: nothing arrived", self.name())),
                _ => Ok(()),
            },
        }
    }

    fn arrived(&self) -> String {
        format!("its twin arrived: {}", self.name())
    }

    fn name(&self) -> String {
        let what = match self.what {
            What::Any(proto) => proto.name().to_owned(),
            What::To(server) => format!("{} {}", server.proto.name(), server.port),
        };
        format!("{} to {}, {what}", self.from.name, self.to.name)
    }
}

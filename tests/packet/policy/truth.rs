//! What the oracle says of a question.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

use osmia_oracle::stories::{self, Objects};
use osmia_oracle::{Direction, Endpoint, Protocol, Traffic, Verdict, World};

use super::ask::{Carried, Question};

/// Some port of each range that the stories' rules have.
const SOME: [u16; 9] = [1, 53, 79, 80, 81, 443, 8080, 32_768, 65_535];

/// A pod of this node, a direction of its rules, the other end and the traffic.
type Asked = (u32, Direction, IpAddr, Traffic);

/// One state of the cluster, asked as needed.
pub(crate) struct Truth {
    world: World,
    endpoints: Vec<Endpoint>,
    said: RefCell<HashMap<Asked, Option<Verdict>>>,
}

/// What both ends' policies say; `None`: the end is no pod of this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) egress: Option<Verdict>,
    pub(crate) ingress: Option<Verdict>,
}

impl Answer {
    pub(crate) fn passes(&self) -> bool {
        [&self.egress, &self.ingress].into_iter().flatten().all(Verdict::passes)
    }
}

impl Truth {
    pub(crate) fn of(objects: &Objects) -> Self {
        let endpoints = (0..stories::LOCALS).map(|pod| objects.endpoint(pod)).collect();
        Self { world: objects.world(), endpoints, said: RefCell::default() }
    }

    /// `None` where an end's own Pod has not been told yet: no policy can be asked about it.
    pub(crate) fn answer(&self, question: &Question) -> Option<Answer> {
        let (from, to) = (question.from, question.to);
        // "A pod cannot block access to itself."
        if from.pod.is_some() && from.pod == to.pod {
            return Some(Answer { egress: None, ingress: None });
        }
        let of = |pod: Option<u32>, direction, peer| match pod {
            Some(pod) => Some(Some(self.carried(pod, direction, peer, question.carried)?)),
            None => Some(None),
        };
        Some(Answer {
            egress: of(from.pod, Direction::Egress, to.address)?,
            ingress: of(to.pod, Direction::Ingress, from.address)?,
        })
    }

    fn carried(&self, pod: u32, direction: Direction, peer: IpAddr, carried: Carried) -> Option<Verdict> {
        match carried {
            Carried::To(protocol, port) => self.verdict(pod, direction, peer, Traffic { protocol, port }),
            Carried::Echo => self.verdict(pod, direction, peer, Traffic { protocol: Protocol::Other, port: 0 }),
            // It passes where any port does.
            Carried::Loose(protocol) => {
                let mut each = Vec::new();
                for port in SOME {
                    each.push(self.verdict(pod, direction, peer, Traffic { protocol, port })?);
                }
                let rules = each.iter().flat_map(|verdict| match verdict {
                    Verdict::Allowed(rules) => rules.clone(),
                    _ => Vec::new(),
                });
                let rules: Vec<_> = rules.collect();
                Some(if rules.is_empty() { each.swap_remove(0) } else { Verdict::Allowed(rules) })
            }
        }
    }

    fn verdict(&self, pod: u32, direction: Direction, peer: IpAddr, traffic: Traffic) -> Option<Verdict> {
        let ask = || {
            let endpoint = self.endpoints.get(pod as usize)?;
            let told = endpoint.pod.is_none() || self.world.own(endpoint).is_some();
            told.then(|| self.world.held(endpoint, direction, peer, traffic))
        };
        self.said.borrow_mut().entry((pod, direction, peer, traffic)).or_insert_with(ask).clone()
    }
}

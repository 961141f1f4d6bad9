//! A node of a large cluster: an agent that watches an API server which says a feed, and the pods of its node, attached by the plugin.
//!
//! How long a change takes is seen in the pinned maps: asked for over and over from outside the agent, from the moment that the event could
//! be read from the API server until the last row that the agent writes for it is there. Under churn a thread of its own tells of what else
//! happens, at its pace, meanwhile too.

mod churn;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use osmia_lab::apiserver::{Apiserver, SERVER, Store};
use osmia_lab::feed::{CLUSTER_CIDRS, Event, Feed, FeedServer, Sizes, What};
use osmia_lab::{Lab, Options, Pod, Subnet};
use osmia_maps::layout::{Addr, Endpoint};
use osmia_maps::{Access, Pins, Table, tables};

use self::churn::Churn;

/// The cluster of the single changes.
pub(crate) const MIDDLE: Sizes = Sizes { nodes: 330, pods: 10_000, policies: 1_000, here: 110 };
/// The largest that peers publish figures of. A node has as many pods as a kubelet takes.
pub(crate) const LARGE: Sizes = Sizes { nodes: 1_000, pods: 30_000, policies: 30_000, here: 110 };
/// Every run has the same cluster.
const SEED: u64 = 4;
/// Longer than any change may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at something that is not timed.
const GLANCE: Duration = Duration::from_millis(5);

/// Who says what happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Teller {
    /// The feed's own server.
    Feed,
    /// A real apiserver, whose etcd is written to.
    Apiserver,
}

enum Server {
    Feed(FeedServer),
    Apiserver { store: Box<Store>, _server: Box<Apiserver> },
}

impl Server {
    /// From when on the event could be known.
    fn tell(&self, event: &Event) -> Result<Instant> {
        match self {
            Self::Feed(server) => Ok(server.tell(event)),
            Self::Apiserver { store, .. } => store.tell(std::slice::from_ref(event)),
        }
    }
}

/// The node.
pub(crate) struct Scale {
    lab: Lab,
    feed: Feed,
    server: Server,
    _pods: Vec<Pod>,
    /// Slots of the pods that probes are about.
    slots: BTreeMap<usize, u32>,
    maps: Maps,
    churn: Churn,
    /// It goes on while a change is timed.
    churns: bool,
}

/// Where a change is looked for.
struct Maps {
    peers: Table<Addr, u32>,
    epochs: Table<u32, u32>,
    endpoints: Table<u32, Endpoint>,
}

impl Scale {
    /// Builds it, and waits until all of it is in force.
    pub(crate) fn build(sizes: Sizes, teller: Teller) -> Result<Self> {
        let options = Options {
            nodes: vec![Subnet::Near],
            cluster_cidrs: CLUSTER_CIDRS.map(str::to_owned).to_vec(),
            ..Options::default()
        };
        let mut lab = Lab::build(options)?;
        let node = lab.nodes.first_mut().context("a lab without nodes")?;
        let mut feed = Feed::new(sizes, SEED, &node.manifest);
        let (server, config) = match teller {
            Teller::Feed => {
                let server = FeedServer::start(&node.space, feed.events())?;
                let config = server.kubeconfig(&node.paths.run)?;
                (Server::Feed(server), config)
            }
            Teller::Apiserver => {
                let server = Apiserver::inside(node.space.try_clone()?, &[])?;
                let store = server.store()?;
                store.tell(&feed.events())?;
                let config = server.kubeconfig("config", SERVER, &server.admin())?;
                (Server::Apiserver { store: Box::new(store), _server: Box::new(server) }, config)
            }
        };
        node.set_source(&["--source", "kube", "--kubeconfig", &config.display().to_string()]);
        lab.start_agents()?;
        let mut pods = Vec::new();
        let here: Vec<usize> = feed.here().collect();
        for index in here {
            let told = feed.pod(index);
            let (space, attachment) = lab.sandbox_alone(0, &told.namespace, &told.name, &told.uid)?;
            let pod = lab.attach(0, &told.name, space, attachment)?;
            let addresses: Vec<IpAddr> = pod.v4.map(IpAddr::from).into_iter().chain(pod.v6.map(IpAddr::from)).collect();
            server.tell(&feed.attached(index, &addresses))?;
            pods.push(pod);
        }
        let node = lab.node(0)?;
        let pins = Pins::new(&node.paths.bpffs);
        let (peers, epochs, endpoints, slot_of) = node.space.run(|| {
            let access = Access::ReadOnly;
            anyhow::Ok((
                tables::PEERS.open(&pins, access)?,
                tables::EPOCHS.open(&pins, access)?,
                tables::ENDPOINTS.open(&pins, access)?,
                tables::ENDPOINT_ADDR.open(&pins, access)?,
            ))
        })??;
        let mut slots = BTreeMap::new();
        for probe in feed.probes() {
            let address = feed.pod(probe.here).addresses.first().copied().context("a pod without address")?;
            slots.insert(probe.here, slot_of.get(&addr(address))?.context("a pod without endpoint")?);
        }
        let (maps, churn) = (Maps { peers, epochs, endpoints }, Churn::default());
        let mut scale = Self { lab, feed, server, _pods: pods, slots, maps, churn, churns: false };
        if sizes.here > 0 && sizes.policies > 0 {
            scale.catch_up()?;
        }
        Ok(scale)
    }

    /// Process id of the agent.
    pub(crate) fn pid(&self) -> Result<u32> {
        Ok(self.lab.node(0)?.agent().as_ref().context("the agent does not run")?.pid())
    }

    /// One change of a pod: it is no peer of a pod here any more, or is again. From event to map.
    pub(crate) fn pod_change(&mut self, turn: usize) -> Result<Duration> {
        let probes = self.feed.probes();
        let probe = *probes.get(turn % probes.len().max(1)).context("nothing to watch for")?;
        let slot = *self.slots.get(&probe.here).context("a pod without slot")?;
        let addresses = self.feed.pod(probe.peer).addresses;
        let class = |of: &Maps| addresses.iter().map(|a| of.peers.get(&addr(*a))).collect::<Result<Vec<_>, _>>();
        let (before, epoch) = (class(&self.maps)?, self.maps.epochs.get(&slot)?);
        let event = self.feed.relabel(probe.peer);
        self.time(&event, |of| {
            // The epoch last, as it is written.
            Ok(class(of)?.iter().zip(&before).all(|(now, then)| now != then) && of.epochs.get(&slot)? != epoch)
        })
    }

    /// One change of a policy of a pod here: another port. From event to map.
    pub(crate) fn policy_change(&mut self, turn: usize) -> Result<Duration> {
        let probes = self.feed.probes();
        let probe = *probes.get(turn % probes.len().max(1)).context("nothing to watch for")?;
        let slot = *self.slots.get(&probe.here).context("a pod without slot")?;
        let rules = |of: &Maps| {
            let row = of.endpoints.get(&slot)?.context("a pod without a row")?;
            anyhow::Ok((row.ingress_rules, row.egress_rules))
        };
        let ((before, _), epoch) = (rules(&self.maps)?, self.maps.epochs.get(&slot)?);
        let event = self.feed.edit(probe.policy);
        self.time(&event, |of| {
            let (ingress, egress) = rules(of)?;
            // A set has one direction: where both are the same one the pod is shut until all is written. The epoch last, as it is written.
            Ok(ingress != before && ingress != egress && of.epochs.get(&slot)? != epoch)
        })
    }

    /// A policy comes that speaks of half of all pods: from event to map, and rows written. It goes again before this returns.
    pub(crate) fn sweeping_change(&mut self) -> Result<(Duration, usize)> {
        let probe = *self.feed.probes().first().context("nothing to watch for")?;
        let slot = *self.slots.get(&probe.here).context("a pod without slot")?;
        let before = self.maps.peers.dump()?;
        let epoch = self.maps.epochs.get(&slot)?;
        let come = self.feed.open(probe.here, What::Added);
        let took = self.time(&come, |of| Ok(of.epochs.get(&slot)? != epoch))?;
        let after = self.maps.peers.dump()?;
        let rows = after.iter().filter(|(address, class)| before.get(*address) != Some(*class)).count();
        let go = self.feed.open(probe.here, What::Deleted);
        self.server.tell(&go)?;
        // What is not asked for any more goes a little later.
        let since = Instant::now();
        while self.maps.peers.rows()?.len() != before.len() {
            ensure!(since.elapsed() < PATIENCE, "rows that nothing asks for stay");
            thread::sleep(GLANCE);
        }
        Ok((took, rows))
    }

    /// Tells as much churn as belongs to `length`, at its pace.
    pub(crate) fn churn_for(&mut self, length: Duration) -> Result<()> {
        let until = Instant::now() + length;
        self.churn.tell(&mut self.feed, &self.server, || Instant::now() < until)
    }

    /// What is timed by `call` is timed while all the cluster churns.
    pub(crate) fn under_churn<T>(&mut self, call: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.churns = true;
        let result = call(self);
        self.churns = false;
        result
    }

    /// Tells `steps` of churn at once, and waits until they are in force.
    pub(crate) fn churn_at_once(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            for event in self.feed.churn() {
                self.server.tell(&event)?;
            }
        }
        self.catch_up()
    }

    /// Waits until all that was told so far is in force: each watch tells in order.
    fn catch_up(&mut self) -> Result<()> {
        for _ in 0..2 {
            self.pod_change(0)?;
        }
        self.policy_change(0).map(drop)
    }

    fn time(&mut self, event: &Event, is_there: impl Fn(&Maps) -> Result<bool>) -> Result<Duration> {
        let Self { feed, server, maps, churn, .. } = self;
        let wait = || wait(server, maps, event, is_there);
        let took = if self.churns { churn.beside(feed, server, wait)? } else { wait()? };
        took.with_context(|| {
            let agent = self.lab.node(0).ok().and_then(|node| node.agent().as_ref().map(osmia_lab::Agent::last_words));
            format!("an event is not in the maps after {PATIENCE:?}{}", agent.unwrap_or_default())
        })
    }
}

/// `None`: it was never there.
fn wait(
    server: &Server,
    maps: &Maps,
    event: &Event,
    is_there: impl Fn(&Maps) -> Result<bool>,
) -> Result<Option<Duration>> {
    let at = server.tell(event)?;
    while !is_there(maps)? {
        if at.elapsed() > PATIENCE {
            return Ok(None);
        }
    }
    Ok(Some(at.elapsed()))
}

fn addr(address: IpAddr) -> Addr {
    match address {
        IpAddr::V4(address) => Addr::v4(address.octets()),
        IpAddr::V6(address) => Addr::v6(address.octets()),
    }
}

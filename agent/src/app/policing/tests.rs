//! Against maps that remember, and that refuse when they are told to.

mod counted;
mod enforced;
mod maps;
mod noticed;
mod refused;
mod resumed;
mod said;
mod untold;

use std::net::Ipv4Addr;

use osmia_maps::{
    catalogue::Catalogue,
    layout::endpoint::{E_PRESENT, E_READY},
};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

use self::maps::Maps;
use super::{endpoints::SHUT, *};
use crate::{
    attachments::fake::TestClock,
    compile::policy::{CLOSED, Rules},
    model::{Kind, Name, NamespaceObject, PodObject, PolicyObject, Selector},
    source::notice::{Notice, Reason},
};

/// A node with its maps; agents come and go.
struct World {
    run: TempDir,
    maps: Maps,
    policing: Policing<Maps>,
    noticed: Receiver<Notice>,
}

fn agent(run: &TempDir) -> (Policing<Maps>, Receiver<Notice>) {
    let (notices, noticed) = Notices::new();
    (Policing::open(run.path(), Arc::new(TestClock::default()), Arc::default(), notices).unwrap(), noticed)
}

fn key(name: &str) -> Name {
    Name::new("ns", name)
}

/// Every pod of the namespace, nothing allowed.
fn deny() -> Event {
    let none = Some(Arc::from([]));
    Event::Policy(
        key("deny"),
        PolicyObject {
            uid: "u".into(),
            subject: Selector::default(),
            ingress: none.clone(),
            egress: none,
            refused: Vec::new(),
        },
    )
}

fn pod(name: &str) -> Event {
    Event::Pod(key(name), PodObject::default())
}

/// All there is was told.
fn all() -> Vec<Event> {
    Kind::ALL.map(Event::Told).into()
}

fn endpoint(host: u8) -> Endpoint {
    Endpoint { ifindex: u32::from(host), flags: E_PRESENT | E_READY, v4: [10, 0, 0, host], ..Endpoint::default() }
}

/// An endpoint of a pod of the namespace.
fn local(host: u8, name: &str, uid: &str) -> Local {
    Local { pod: Some(key(name)), uid: uid.into(), addresses: vec![Ipv4Addr::new(10, 0, 0, host).into()] }
}

const OPEN: Rules = Rules { egress: 0, ingress: 0 };

impl World {
    /// Namespace ns without policies, and no endpoint.
    fn new() -> Self {
        let run = TempDir::new().unwrap();
        let (policing, noticed) = agent(&run);
        let mut new = Self { policing, noticed, run, maps: Maps::default() };
        new.tell(vec![Event::Namespace("ns".into(), NamespaceObject::default())]);
        new.tell(all());
        new.policing.begin(&mut new.maps, BTreeMap::new());
        new
    }

    fn tell(&mut self, events: Vec<Event>) {
        self.policing.take(&mut self.maps, events, Instant::now());
    }

    fn put(&mut self, host: u8, name: &str) -> Rules {
        self.put_local(host, local(host, name, ""))
    }

    fn put_local(&mut self, host: u8, local: Local) -> Rules {
        let slot = u32::from(host);
        self.policing.put(&mut self.maps, slot, endpoint(host), local).unwrap();
        self.rules(slot)
    }

    fn rules(&self, slot: u32) -> Rules {
        let row = self.maps.rows[&slot];
        Rules { egress: row.egress_rules, ingress: row.ingress_rules }
    }

    /// A barrier is over.
    fn bury(&mut self) {
        while let graves = self.policing.graves()
            && !graves.is_empty()
        {
            self.policing.bury(&mut self.maps, graves);
        }
    }

    /// Whether all of it was, once.
    fn is_in_force(&self) -> bool {
        *self.policing.in_force().borrow()
    }

    fn catalogue(&self) -> Catalogue {
        Catalogue::read(&osmia_maps::catalogue::path(self.run.path())).unwrap()
    }

    /// What was said of policies since the last time.
    fn notices(&mut self) -> Vec<(Reason, String)> {
        let each = std::iter::from_fn(|| self.noticed.try_recv().ok());
        each.map(|notice| (notice.reason, notice.policy.name)).collect()
    }

    /// Kills the agent and starts another, to which the source tells nothing yet.
    fn kill(&mut self) {
        (self.policing, self.noticed) = agent(&self.run);
    }

    /// Kills the agent and starts another, to which the source tells the same at once.
    fn restart(&mut self, events: Vec<Event>) {
        let locals = self.policing.locals.clone();
        self.kill();
        self.tell(events);
        self.tell(all());
        self.policing.begin(&mut self.maps, locals);
    }
}

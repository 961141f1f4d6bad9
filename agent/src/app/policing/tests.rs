//! Against maps that remember, and that refuse when they are told to.

mod counted;
mod noticed;
mod said;
mod untold;

use std::{
    cell::Cell,
    net::{IpAddr, Ipv4Addr},
};

use anyhow::{bail, ensure};
use osmia_maps::catalogue::{Catalogue, Last};
use osmia_maps::layout::{
    VerdictKey,
    endpoint::{E_PRESENT, E_READY},
};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;

use super::*;
use crate::{
    attachments::fake::TestClock,
    model::{Kind, Name, NamespaceObject, PodObject, PolicyObject, Selector, policy::Direction},
    source::notice::Notice,
};

/// Maps.
#[derive(Default)]
struct Maps {
    pinned: Pinned,
    rows: BTreeMap<u32, Endpoint>,
    generation: u64,
    epochs: BTreeSet<u32>,
    full: bool,
    /// Nothing can be written.
    stuck: bool,
    /// How many verdict rows there is room for, where it is not all.
    room: Option<usize>,
    unreadable: bool,
    /// How often all of it was read.
    reads: Cell<usize>,
}

impl Rows for Maps {
    type Garbage = BTreeSet<VerdictKey>;

    fn pinned_policy(&self) -> Result<Pinned> {
        self.reads.set(self.reads.get() + 1);
        ensure!(!self.unreadable, "the map cannot be read");
        let rules = |row: &Endpoint| Rules { egress: row.egress_rules, ingress: row.ingress_rules };
        let rules = self.rows.iter().map(|(slot, row)| (*slot, rules(row))).collect();
        Ok(Pinned { rules, ..self.pinned.clone() })
    }

    fn name_rows(&mut self, generation: u64) -> Result<()> {
        self.generation = generation;
        Ok(())
    }

    fn write_policy(&mut self, change: &Change) -> Result<Self::Garbage> {
        if self.stuck || self.full && !change.verdicts.is_empty() {
            bail!("the map is full");
        }
        let new = change.verdicts.keys().filter(|key| !self.pinned.verdicts.contains_key(&key.row())).count();
        let rows = self.pinned.verdicts.len() + new;
        if let Some(room) = self.room.filter(|room| rows > *room) {
            return Err(PolicyError::TooMany { map: "verdicts", rows, capacity: room as u32 }.into());
        }
        self.pinned.verdicts.extend(change.verdicts.iter().map(|(key, verdict)| (key.row(), verdict.row(key))));
        for (address, class) in &change.peers {
            match class {
                Some(class) => self.pinned.peers.insert(*address, *class),
                None => self.pinned.peers.remove(address),
            };
        }
        for (range, class) in &change.blocks {
            match class {
                Some(class) => self.pinned.blocks.insert(*range, *class),
                None => self.pinned.blocks.remove(range),
            };
        }
        for (slot, rules) in &change.endpoints {
            if let Some(row) = self.rows.get_mut(slot) {
                (row.egress_rules, row.ingress_rules) = (rules.egress, rules.ingress);
            }
        }
        self.epochs.extend(&change.epochs);
        Ok(change.old_verdicts.clone())
    }

    fn bury_policy(&mut self, garbage: Self::Garbage) -> Result<usize> {
        let before = self.pinned.verdicts.len();
        self.pinned.verdicts.retain(|key, _| !garbage.contains(key));
        Ok(before - self.pinned.verdicts.len())
    }

    fn endpoint(&self, slot: u32) -> Result<Option<Endpoint>> {
        Ok(self.rows.get(&slot).copied())
    }

    fn put_endpoint(&mut self, slot: u32, endpoint: Endpoint) -> Result<()> {
        self.rows.insert(slot, endpoint);
        Ok(())
    }

    fn remove_endpoint(&mut self, slot: u32) -> Result<()> {
        self.rows.remove(&slot);
        Ok(())
    }
}

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
    ("ns".to_owned(), name.to_owned()).into()
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
    Local { pod: Some((*key(name)).clone()), uid: uid.into(), addresses: vec![Ipv4Addr::new(10, 0, 0, host).into()] }
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

#[tokio::test(start_paused = true)]
async fn a_policy_is_in_force_with_its_name_and_goes_without_a_trace() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    assert_eq!(world.put(1, "a"), OPEN);
    let empty = world.maps.pinned.verdicts.clone();
    world.tell(vec![deny()]);
    let rules = world.rules(1);
    assert!(rules.egress > CLOSED && rules.ingress > CLOSED && world.maps.epochs.contains(&1));
    let catalogue = world.catalogue();
    assert_eq!(catalogue.generation, world.maps.generation);
    assert_eq!(catalogue.in_force.unwrap().generation, catalogue.generation);
    let names: Vec<String> = catalogue.policies.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["ns/deny"]);
    assert_eq!(catalogue.endpoints[&1].as_ref().unwrap().to_string(), "ns/a");
    assert!(catalogue.sets.contains_key(&rules.egress) && catalogue.sets.contains_key(&rules.ingress));

    world.tell(vec![Event::PolicyGone(key("deny"))]);
    assert_eq!(world.rules(1), OPEN);
    assert!(world.maps.pinned.verdicts.len() > empty.len(), "packets under way may still ask the old rows");
    world.bury();
    assert_eq!(world.maps.pinned.verdicts, empty);
    let catalogue = world.catalogue();
    assert!(catalogue.sets.is_empty() && catalogue.policies.is_empty());
    world.policing.remove(&mut world.maps, 1).unwrap();
    assert!(world.catalogue().endpoints.is_empty());
}

#[tokio::test(start_paused = true)]
async fn full_maps_keep_what_was_in_force_until_there_is_room() {
    let mut world = World::new();
    world.tell(vec![pod("a"), Event::Pod(("other".to_owned(), "c".to_owned()).into(), PodObject::default())]);
    world.put(1, "a");
    world.maps.full = true;
    world.tell(vec![deny()]);
    assert_eq!(world.rules(1), OPEN, "the old state stays");
    assert!(world.policing.retry_at().is_some());
    assert!(world.catalogue().policies.is_empty(), "it is not in force");
    world.tell(vec![pod("b")]);
    assert_eq!(world.put(2, "b"), SHUT);
    // Who had its address before has rights that it must not have; whether the maps still say so is not known.
    let address = IpAddr::from([10, 0, 0, 3]);
    world.maps.pinned.peers.insert(address, 77);
    let c = Local { pod: Some(("other".into(), "c".into())), ..local(3, "c", "") };
    assert_eq!(world.put_local(3, c.clone()), OPEN, "no policy selects it");
    assert!(!world.maps.pinned.peers.contains_key(&address));
    world.maps.stuck = true;
    assert_eq!(
        world.put_local(4, Local { addresses: vec![[10, 0, 0, 4].into()], ..c }),
        SHUT,
        "its address may be another's"
    );
    world.maps.stuck = false;
    let counts = world.policing.counts();
    assert_eq!((counts.refused, counts.open), (2, 1));
    world.policing.try_again(&mut world.maps);
    assert_eq!((world.rules(1), world.rules(2)), (OPEN, SHUT));
    world.maps.full = false;
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.policing.retry_at(), None);
    assert_eq!((world.rules(3), world.rules(4)), (OPEN, OPEN));
    assert!(world.rules(1) != OPEN && world.rules(2) == world.rules(1), "replicas share their rules");
    assert_eq!(world.policing.counts().isolated, 2);
    assert_eq!(world.catalogue().policies.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_add_is_open_while_the_maps_cannot_even_be_read() {
    let mut world = World::new();
    world.tell(vec![pod("a"), pod("b")]);
    world.put(1, "a");
    world.maps.full = true;
    world.tell(vec![deny()]);
    world.maps.unreadable = true;
    let reads = world.maps.reads.get();
    assert_eq!(world.put(2, "b"), SHUT);
    assert_eq!(world.maps.reads.get(), reads, "an ADD compiles nothing anew");
    assert_eq!(world.policing.counts().refused, 1);
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.rules(2), SHUT);
    (world.maps.full, world.maps.unreadable) = (false, false);
    world.policing.try_again(&mut world.maps);
    assert!(world.rules(2) != SHUT && world.rules(2) != OPEN && world.rules(2) == world.rules(1));
    assert_eq!(world.policing.counts().isolated, 2);
}

#[tokio::test(start_paused = true)]
async fn an_add_after_a_start_that_failed_is_shut_until_it_is_made_up_for() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    world.maps.unreadable = true;
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), pod("b")]);
    assert_eq!(world.put(2, "b"), SHUT);
    assert_eq!(world.policing.counts().refused, 1);
    world.maps.unreadable = false;
    world.policing.try_again(&mut world.maps);
    assert_eq!((world.rules(1), world.rules(2)), (OPEN, OPEN));
    assert_eq!(world.catalogue().endpoints[&2].as_ref().unwrap().to_string(), "ns/b");
    world.tell(vec![deny()]);
    assert!(world.rules(2) != OPEN && world.rules(2) == world.rules(1));
}

#[tokio::test(start_paused = true)]
async fn what_stays_refused_is_tried_ever_more_rarely() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    world.maps.full = true;
    let waits = |world: &mut World| {
        world.tell(vec![deny()]);
        let mut waits = Vec::new();
        for _ in 0..7 {
            let wait = world.policing.retry_at().unwrap() - Instant::now();
            waits.push(wait.as_secs());
            // Neither news nor a DEL bring it forward or put it off.
            world.tell(vec![pod("b"), Event::PodGone(key("b"))]);
            assert_eq!(world.policing.retry_at(), Some(Instant::now() + wait));
            world.policing.try_again(&mut world.maps);
        }
        waits
    };
    assert_eq!(waits(&mut world), [2, 4, 8, 16, 32, 60, 60]);
    world.maps.full = false;
    world.policing.try_again(&mut world.maps);
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    world.bury();
    world.maps.full = true;
    assert_eq!(waits(&mut world)[..2], [2, 4], "what came into force is forgotten");
}

#[tokio::test(start_paused = true)]
async fn no_row_is_written_that_the_catalogue_does_not_name() {
    let mut world = World::new();
    world.tell(vec![pod("a")]);
    world.put(1, "a");
    let before = (world.maps.pinned.clone(), world.maps.generation);
    world.policing.catalogue.refuse(true);
    world.tell(vec![deny()]);
    assert_eq!((world.maps.pinned.clone(), world.maps.generation), before);
    assert_eq!(world.rules(1), OPEN);
    let refused = world.policing.put(&mut world.maps, 2, endpoint(2), local(2, "b", ""));
    assert!(refused.is_err() && !world.maps.rows.contains_key(&2), "an ADD is refused");
    // A DEL is not: the line that is missing is made up for.
    world.policing.remove(&mut world.maps, 1).unwrap();
    world.policing.catalogue.refuse(false);
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.policing.retry_at(), None);
    let catalogue = world.catalogue();
    assert!(catalogue.endpoints.is_empty());
    assert_eq!(catalogue.policies.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_over_the_same_changes_nothing_and_over_others_what_differs() {
    let mut world = World::new();
    let same = || vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), deny()];
    world.tell(same());
    world.put(1, "a");
    world.bury();
    let (before, generation) = (world.maps.pinned_policy().unwrap(), world.maps.generation);
    world.maps.epochs.clear();
    world.restart(same());
    assert_eq!((world.maps.pinned_policy().unwrap(), world.maps.generation), (before, generation));
    assert!(world.maps.epochs.is_empty(), "no flow is judged again for a start");
    // The policy went while no agent was there.
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a")]);
    world.bury();
    assert_eq!(world.rules(1), OPEN);
    let catalogue = world.catalogue();
    assert!(catalogue.policies.is_empty() && catalogue.sets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rows_that_are_in_use_again_are_not_buried() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    world.bury();
    let (rows, rules) = (world.maps.pinned.verdicts.clone(), world.rules(1));
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    let graves = world.policing.graves();
    assert!(!graves.is_empty());
    // While the barrier is waited for the policy comes back, and everything is compiled anew over the old rows.
    world.policing.catalogue.refuse(true);
    world.tell(vec![deny()]);
    world.policing.catalogue.refuse(false);
    world.policing.try_again(&mut world.maps);
    world.policing.bury(&mut world.maps, graves);
    world.bury();
    assert_eq!(world.rules(1), rules, "what the catalogue still names keeps its numbers");
    assert_eq!(world.maps.pinned.verdicts, rows);
}

#[tokio::test(start_paused = true)]
async fn rows_that_nothing_leads_to_make_room_before_the_next_try() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    world.bury();
    let used: Vec<_> = world.maps.pinned.verdicts.clone().into_iter().collect();
    // What a killed agent wrote and led nobody to: rule sets, and classes of the sets that are there.
    for number in 1000..1010 {
        for (key, row) in &used {
            let (mut set, mut class) = (*key, *key);
            (set.asked.set, class.asked.class) = (number, number);
            world.maps.pinned.verdicts.extend([(set, *row), (class, *row)]);
        }
    }
    world.maps.room = Some(world.maps.pinned.verdicts.len());
    world.restart(vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), deny()]);
    assert!(world.policing.retry_at().is_some());
    let before = world.rules(1);
    world.bury();
    let left: Vec<_> = world.maps.pinned.verdicts.clone().into_iter().collect();
    assert_eq!(left, used, "what is asked stays");
    assert_eq!(world.rules(1), before);
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.policing.retry_at(), None);
    assert!(world.rules(1) != OPEN && world.rules(1) != SHUT);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_writes_nothing_says_what_is_over_the_budget() {
    let mut world = World::new();
    let over = OverBudget {
        slot: 1,
        pod: None,
        direction: Direction::Ingress,
        policies: Vec::new(),
        map: "verdicts",
        rows: 2,
        limit: 1,
    };
    world.policing.over_budget = vec![over];
    let generation = world.maps.generation;
    world.policing.try_again(&mut world.maps);
    assert_eq!(world.maps.generation, generation, "there was nothing to write");
    assert!(world.policing.over_budget.is_empty(), "what was said is compared with what is");
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_and_go_leave_no_history_behind() {
    let mut world = World::new();
    let length = |world: &World| std::fs::metadata(osmia_maps::catalogue::path(world.run.path())).unwrap().len();
    let mut longest = 0;
    for _ in 0..250 {
        for _ in 0..100 {
            world.put(1, "a");
            world.policing.remove(&mut world.maps, 1).unwrap();
        }
        world.policing.housekeep();
        longest = length(&world).max(longest);
    }
    assert!(longest > 1 << 20, "{longest}");
    // A thread makes it shorter.
    for _ in 0..60_000 {
        if length(&world) < 1 << 20 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        world.policing.housekeep();
    }
    let length = length(&world);
    assert!(world.policing.graves().is_empty(), "nothing here leads to a burial");
    assert!(length < 1 << 20 && world.catalogue().endpoints.is_empty(), "{length}");
}

#[tokio::test(start_paused = true)]
async fn where_the_numbers_are_used_up_what_is_in_force_stays_and_none_is_given_twice() {
    let mut world = World::new();
    world.tell(vec![pod("a"), deny()]);
    world.put(1, "a");
    let rules = world.rules(1);
    let last = Last { set: u32::MAX - 1, ..world.catalogue().last };
    let same = || vec![Event::Namespace("ns".into(), NamespaceObject::default()), pod("a"), pod("b")];
    world.policing.catalogue.append(&[Line::Generation { generation: 1000, last }]).unwrap();
    world.restart(same());
    assert_eq!((world.rules(1), world.put(2, "b")), (rules, SHUT));
    assert!(world.policing.retry_at().is_some() && world.policing.counts().waiting);
    world.tell(vec![Event::PolicyGone(key("deny"))]);
    world.policing.try_again(&mut world.maps);
    assert_eq!((world.rules(1), world.rules(2)), (rules, SHUT));
}

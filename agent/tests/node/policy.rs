//! Policy rows in the real maps: they follow, they are refused whole where they do not fit, and whatever a killed agent left is gone on from.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use osmia_agent::{
    clock::SystemClock,
    compile::policy::{Change, Local, Policies, Resumed, Touched},
    model::{Cluster, Event, Name},
    program::{Attaching, Dataplane, OBJECT, Options, PolicyError, ProgramLog, barrier},
    source::{folder::manifest, object::Object},
};
use osmia_maps::{
    Access, MapError, Pins,
    catalogue::{self, Catalogue, Line},
    layout::{Addr, Endpoint, endpoint::E_READY, programs},
    tables,
};
use serde_json::{Value, json};

use crate::{pods::as_process, space};

/// Deaths.
const KILLS: u32 = 20;
/// Where by then none came between a change's rows and their burial, on a machine that is too busy for it, it goes on for so many.
const KILLS_AT_MOST: u32 = 400;

fn options() -> Options {
    Options {
        pins: Pins::new(space::root()),
        mark: programs::DEFAULT_MARK,
        flow_memory: 2 << 20,
        attaching: Attaching::Auto,
        log: ProgramLog::Off,
    }
}

fn open() -> Dataplane {
    Dataplane::open(&options(), OBJECT, &SystemClock).unwrap_or_else(|e| panic!("{e:?}"))
}

fn address(slot: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, 1, slot as u8)
}

/// Endpoints 1 to 3 are pods web1 to web3.
fn locals() -> BTreeMap<u32, Local> {
    let local = |slot| Local {
        pod: Some(Name::new("a", &format!("web{slot}"))),
        addresses: vec![IpAddr::from(address(slot))],
        ..Local::default()
    };
    (1..=3).map(|slot| (slot, local(slot))).collect()
}

fn is(cluster: &mut Cluster, object: &Value) -> Touched {
    let read = manifest::parse(&object.to_string()).unwrap().into_iter().next().unwrap();
    let (event, touched) = match read {
        Object::Namespace(name, namespace) => (Event::Namespace(name.clone(), namespace), Touched::Namespace(name)),
        Object::Pod(namespace, name, pod) => {
            let key = Name::from((namespace, name));
            (Event::Pod(Name::clone(&key), pod), Touched::Pod(key))
        }
        Object::Policy(namespace, name, policy) => {
            let key = Name::from((namespace, name));
            (Event::Policy(Name::clone(&key), policy), Touched::Policy(key))
        }
        Object::Node(..) => unreachable!(),
    };
    cluster.apply(event);
    touched
}

/// Pods web1 to web3 here, and some others elsewhere.
fn cluster() -> Cluster {
    let mut cluster = Cluster::default();
    is(&mut cluster, &json!({"kind": "Namespace", "metadata": {"name": "a"}}));
    let pods = (1..=3).map(|n| ("web", n, 1)).chain((1..=40).map(|n| ("db", n, 2)));
    for (app, n, third) in pods {
        let ip = Ipv4Addr::new(10, 244, third, n);
        let labels = json!({"app": app, "part": format!("{}", n % 3)});
        is(
            &mut cluster,
            &json!({"kind": "Pod", "metadata": {"namespace": "a", "name": format!("{app}{n}"), "labels": labels},
                    "status": {"podIPs": [{"ip": ip.to_string()}]}}),
        );
    }
    cluster
}

/// One of some policies that speak of pods, ranges, names and ports.
fn policy(n: u32) -> Value {
    let part = format!("{}", n % 3);
    let blocks: Vec<Value> =
        (0..20 * (n % 4)).map(|i| json!({"ipBlock": {"cidr": format!("192.0.{i}.0/24")}})).collect();
    let mut from = vec![json!({"podSelector": {"matchLabels": {"part": part}}})];
    from.extend(blocks);
    json!({"kind": "NetworkPolicy", "metadata": {"namespace": "a", "name": "p"}, "spec": {
        "podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": from, "ports": [{"port": 80}, {"port": 1000, "endPort": 2000 + n % 5}]}],
        "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "db"}}}]}],
    }})
}

/// An agent as far as policy goes.
struct Agent {
    dataplane: Dataplane,
    policies: Policies,
    cluster: Cluster,
    file: PathBuf,
    generation: u64,
}

impl Agent {
    /// Starts over what is pinned; says what was not known.
    fn start(run: &Path, cluster: Cluster) -> (Self, Change, Option<String>) {
        let mut dataplane = open();
        let file = catalogue::path(run);
        let known = Catalogue::read(&file).unwrap_or_default();
        let Resumed { policies, change, unknown } =
            Policies::resume(&known, &dataplane.pinned_policy().unwrap(), &cluster, &locals());
        for slot in 1..=3 {
            if !dataplane.endpoints().unwrap().contains_key(&slot) {
                let link = space::ifindex(&format!("pod{slot}"));
                let row = Endpoint { ifindex: link, flags: E_READY, v4: address(slot).octets(), ..Endpoint::default() };
                dataplane.put_endpoint(slot, row).unwrap();
            }
        }
        let agent = Self { dataplane, policies, cluster, file, generation: known.generation };
        // Nothing is appended to a line that is not whole.
        let _ = fs::remove_file(&agent.file);
        agent.append(known.lines());
        (agent, change, unknown)
    }

    fn append(&self, lines: impl IntoIterator<Item = Line>) {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, &line).unwrap();
            text.push(b'\n');
        }
        fs::File::options().create(true).append(true).open(&self.file).unwrap().write_all(&text).unwrap();
    }

    fn carry_out(&mut self, change: &Change) -> usize {
        let (names, gone) = (self.policies.take_names().collect::<Vec<_>>(), self.policies.take_gone());
        if change.is_empty() && names.is_empty() && gone.is_none() {
            return 0;
        }
        self.generation += 1;
        let begins = Line::Generation { generation: self.generation, last: self.policies.last() };
        self.append(names.into_iter().chain([begins]));
        let garbage = self.dataplane.write_policy(change).unwrap();
        self.append([Line::InForce { generation: self.generation, at_ms: 0, took_us: 0, policies: vec![] }]);
        barrier();
        let buried = self.dataplane.bury_policy(garbage).unwrap();
        self.append(gone);
        buried
    }

    fn policy(&mut self, n: u32) -> usize {
        let touched = is(&mut self.cluster, &policy(n));
        let change = self.policies.update(&self.cluster, [touched]);
        let buried = self.carry_out(&change);
        let rest = self.policies.collect(&self.cluster);
        buried + self.carry_out(&rest)
    }
}

fn devices() -> tempfile::TempDir {
    space::enter();
    for slot in 1..=3 {
        space::ip(&format!("link add pod{slot} type veth peer name peer{slot}"));
    }
    tempfile::tempdir().unwrap()
}

/// Rows that a start over nothing would have.
fn sizes(cluster: &Cluster) -> (usize, usize, usize) {
    let anew = Policies::resume(&Catalogue::default(), &Default::default(), cluster, &locals()).change;
    (anew.verdicts.len(), anew.peers.len(), anew.blocks.len())
}

fn pinned_sizes(dataplane: &Dataplane) -> (usize, usize, usize) {
    let pinned = dataplane.pinned_policy().unwrap();
    (pinned.verdicts.len(), pinned.peers.len(), pinned.blocks.len())
}

#[test]
fn rows_follow_and_of_an_endpoint_nothing_else_is_touched() {
    let run = devices();
    let (mut agent, first, unknown) = Agent::start(run.path(), cluster());
    assert_eq!(unknown, None);
    agent.carry_out(&first);
    let before = agent.dataplane.endpoints().unwrap();
    let epochs = || tables::EPOCHS.open(&options().pins, Access::ReadOnly).unwrap().dump().unwrap();
    let old = epochs();
    agent.policy(2);
    assert_eq!(pinned_sizes(&agent.dataplane), sizes(&agent.cluster));
    for (slot, row) in agent.dataplane.endpoints().unwrap() {
        let rules = agent.policies.rules(slot);
        assert!(rules.egress > 1 && rules.ingress > 1, "{rules:?}");
        let wanted = Endpoint { egress_rules: rules.egress, ingress_rules: rules.ingress, ..before[&slot] };
        assert_eq!(row, wanted);
        assert!(epochs()[&slot] > old[&slot]);
    }
    assert_eq!(epochs()[&4], old[&4], "a slot that no endpoint has");
    assert!(agent.policy(3) > 0, "the old rows go");
    assert_eq!(pinned_sizes(&agent.dataplane), sizes(&agent.cluster));
    let rows = agent.dataplane.pinned_policy().unwrap();
    drop(agent);

    let (mut agent, change, unknown) = Agent::start(run.path(), {
        let mut cluster = cluster();
        is(&mut cluster, &policy(3));
        cluster
    });
    assert_eq!((unknown, &change), (None, &Change::default()), "all is as it was");
    // Attaching again keeps the rules that it is given.
    let row = agent.dataplane.endpoints().unwrap()[&1];
    agent.dataplane.put_endpoint(1, row).unwrap();
    assert_eq!(agent.dataplane.pinned_policy().unwrap(), rows);
}

#[test]
fn what_does_not_fit_is_refused_whole_and_a_map_that_fills_up_is_gone_on_from() {
    let run = devices();
    let (mut agent, first, _) = Agent::start(run.path(), cluster());
    agent.carry_out(&first);
    agent.policy(1);
    let peers = tables::PEERS.open(&options().pins, Access::ReadWrite).unwrap();
    let room = peers.capacity() as usize - peers.rows().unwrap().len();
    let junk: Vec<(Addr, u32)> =
        (0..room as u32).map(|n| (Addr::v6((0xfd00_u128 << 112 | u128::from(n)).to_be_bytes()), 0)).collect();
    let keys: Vec<Addr> = junk.iter().map(|(key, _)| *key).collect();

    // As many addresses more as there is no room for. Counted before, this agent believes that there is room.
    peers.put_all(&junk).unwrap();
    let touched = is(
        &mut agent.cluster,
        &json!({"kind": "Pod", "metadata": {"namespace": "a", "name": "late", "labels": {"part": "1"}},
                "status": {"podIPs": [{"ip": "10.244.3.1"}]}}),
    );
    let change = agent.policies.update(&agent.cluster, [touched]);
    let before = agent.dataplane.pinned_policy().unwrap();
    let error = agent.dataplane.write_policy(&change).unwrap_err();
    assert!(matches!(error, PolicyError::Map(MapError::Full { map: "peers", .. })), "{error:?}");
    // Now it knows better, and writes nothing at all.
    let error = agent.dataplane.write_policy(&change).unwrap_err();
    assert!(matches!(error, PolicyError::TooMany { map: "peers", .. }), "{error:?}");
    let after = agent.dataplane.pinned_policy().unwrap();
    assert_eq!((&after.peers, &after.rules), (&before.peers, &before.rules), "the old state stays");
    assert!(error.to_string().contains("peers"), "{error}");

    peers.remove_all(&keys).unwrap();
    let _ = agent.dataplane.write_policy(&change).unwrap();
    assert_eq!(agent.dataplane.pinned_policy().unwrap().peers.len(), sizes(&agent.cluster).1);
}

#[test]
#[ignore = "the agent of the test below, as a process that can be killed"]
fn the_agent() {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let run = PathBuf::from(std::env::var_os("OSM_RUN").unwrap());
    let (mut agent, first, _) = Agent::start(&run, cluster());
    agent.carry_out(&first);
    fs::write(run.join("ready"), "").unwrap();
    for n in (0..7).cycle() {
        agent.policy(n);
    }
}

#[test]
fn killed_between_any_two_writes_the_next_start_goes_on() {
    let run = devices();
    let begin = Instant::now();
    let mut pending = 0;
    let mut kills = 0;
    for n in 0..KILLS_AT_MOST {
        if n >= KILLS && pending > 0 {
            break;
        }
        kills += 1;
        let _ = fs::remove_file(run.path().join("ready"));
        let mut child = as_process("policy::the_agent").env("OSM_RUN", run.path()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !run.path().join("ready").exists() {
            assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "the agent does not start");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(u64::from(n * 7919 % 40_000)));
        child.kill().unwrap();
        child.wait().unwrap();

        let mut now = cluster();
        is(&mut now, &policy(n % 7));
        let (mut agent, change, unknown) = Agent::start(run.path(), now);
        assert_eq!(unknown, None, "after kill {n}");
        pending += u32::from(!change.old_verdicts.is_empty());
        agent.carry_out(&change);
        assert_eq!(pinned_sizes(&agent.dataplane), sizes(&agent.cluster), "after kill {n}");
        for (slot, row) in agent.dataplane.endpoints().unwrap() {
            let rules = agent.policies.rules(slot);
            assert_eq!((row.egress_rules, row.ingress_rules), (rules.egress, rules.ingress), "after kill {n}");
        }
        let cluster = agent.cluster.clone();
        drop(agent);
        let (_, change, unknown) = Agent::start(run.path(), cluster);
        assert_eq!((unknown, change), (None, Change::default()), "a start over what is right, after kill {n}");
    }
    println!("{kills} kills in {:?}, {pending} with rows to bury", begin.elapsed());
    assert!(pending > 0, "no kill hit anything");
}

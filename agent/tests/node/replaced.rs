//! The agent killed and started again under load. What this shows, and what was tried, is in `docs/notes/agent-replaced.md`.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use aya::programs::{SchedClassifier, TcAttachType};
use osmia_agent::{
    clock::SystemClock,
    compile::Desired,
    program::{Attaching, Dataplane, OBJECT, Options, ProgramLog},
};
use osmia_maps::{
    Pins,
    layout::{Addr, Config, Endpoint, Route, RouteKey, endpoint::E_READY, programs, route::RouteKind},
};

use crate::{
    pods::{Load, Pod, as_process, own_losses},
    space,
};

const A: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 5);
const B: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 6);
/// Starts that are cut short.
const KILLS: u32 = 20;

fn options(attaching: Attaching) -> Options {
    Options {
        pins: Pins::new(space::root()),
        mark: programs::DEFAULT_MARK,
        flow_memory: 4 << 20,
        attaching,
        log: ProgramLog::Off,
    }
}

fn desired() -> Desired {
    let config = Config {
        mark: 1 << 24,
        pod_mtu: 1500,
        gateway_mac: [2, 0x6f, 0x73, 0x6d, 0, 1],
        masq_min: 61000,
        masq_max: 65535,
        endpoint_flows: 10_000,
        too_big_rate: 100,
        ..Config::default()
    };
    let mut desired = Desired { config, ..Desired::default() };
    let block = RouteKey { bits: 96 + 24, addr: Addr::v4([10, 244, 1, 0]).0 };
    desired.routes.insert(block, Route { kind: RouteKind::LocalBlock as u8, zero: 0, node: 0 });
    desired
}

fn endpoint(name: &str, ip: Ipv4Addr) -> Endpoint {
    Endpoint { ifindex: space::ifindex(name), flags: E_READY, v4: ip.octets(), ..Endpoint::default() }
}

/// What the agent does at start.
fn start() -> Dataplane {
    start_with(Attaching::Auto)
}

fn start_with(attaching: Attaching) -> Dataplane {
    let mut dataplane = Dataplane::open(&options(attaching), OBJECT, &SystemClock).unwrap_or_else(|e| panic!("{e:?}"));
    dataplane.apply(&desired()).unwrap();
    dataplane.put_endpoint(1, endpoint("pod-a", A)).unwrap();
    dataplane.put_endpoint(2, endpoint("pod-b", B)).unwrap();
    dataplane
}

#[test]
#[ignore = "the agent of the test below, as a process that can be killed"]
fn the_agent() {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    let dataplane = start();
    thread::sleep(Duration::from_secs(600));
    drop(dataplane);
}

/// Looks at hooks as fast as it can; gives back the looks and those at which a hook had not exactly one program.
fn watch(hooks: Vec<(u32, TcAttachType)>, stop: Arc<AtomicBool>, wrong: Arc<AtomicU64>) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut looks = 0;
        while !stop.load(Relaxed) {
            for &(ifindex, direction) in &hooks {
                // A program that is replaced between the list and the look at it is no gap.
                match SchedClassifier::query_tcx(ifindex, direction) {
                    Ok((_, programs)) if programs.len() != 1 => wrong.fetch_add(1, Relaxed),
                    _ => 0,
                };
                looks += 1;
            }
            thread::sleep(Duration::from_micros(200));
        }
        looks
    })
}

#[test]
fn killed_and_started_again_under_load_nothing_is_lost() {
    space::enter();
    let (a, b) = (Pod::new("pod-a", A), Pod::new("pod-b", B));
    drop(start());
    // How long a start takes that finds everything there; the process itself comes on top.
    let begin = Instant::now();
    drop(start());
    let takes = begin.elapsed();

    let load = Load::start(&a, &b);
    let (stop, gaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let hooks = [a.ifindex, b.ifindex].map(|i| [(i, TcAttachType::Ingress), (i, TcAttachType::Egress)]);
    let watcher = watch(hooks.concat(), Arc::clone(&stop), Arc::clone(&gaps));
    thread::sleep(Duration::from_secs(1));
    let quiet = load.counts().streamed.load(Relaxed);

    let begin = Instant::now();
    let mut whole = 0;
    // Every moment of a start is met: the n-th kill comes n steps after it began. Every fifth start is let finish.
    for n in 0..KILLS {
        let mut agent = as_process("replaced::the_agent").spawn().unwrap();
        let after = if n % 5 == 4 { takes * 2 } else { takes * 3 * n / (KILLS * 2) };
        thread::sleep(after);
        whole += u32::from(n % 5 == 4);
        agent.kill().unwrap();
        let status = agent.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "the agent ended by itself: {status}"
        );
    }
    let busy = load.counts().streamed.load(Relaxed) - quiet;
    let lasted = begin.elapsed();
    stop.store(true, Relaxed);
    let looks = watcher.join().unwrap();
    let counts = load.stop();

    println!(
        "a start takes {takes:?}; {KILLS} kills ({whole} after a whole start) in {lasted:?}: {counts:?}; {looks} looks at hooks, {gaps:?} gaps; stream {:.0} MB/s before, {:.0} during",
        quiet as f64 / 1e6,
        busy as f64 / 1e6 / lasted.as_secs_f64(),
    );
    println!("{}", own_losses(&[&a, &b]));
    let snapshot = start().snapshot().unwrap();
    let dropped: Vec<_> = snapshot.drops.into_iter().filter(|(_, count)| count.packets != 0).collect();
    println!("drops: {dropped:?}; done: {:?}", snapshot.stats.into_iter().filter(|s| s.1 != 0).collect::<Vec<_>>());
    assert_eq!(gaps.load(Relaxed), 0, "a hook was without its one program");
    let (sent, received) = (counts.sent.load(Relaxed), counts.received.load(Relaxed));
    assert!(sent > 4000, "too little load to show anything: {sent}");
    assert_eq!(sent - received, 0, "datagrams are missing of {sent}");
    assert!(counts.connected.load(Relaxed) > 100);
    assert_eq!(counts.failed.load(Relaxed), 0, "connections failed");

    // What is left is what one agent leaves: a start adopts it and the jump tables of the others are gone.
    drop(start());
    let tables = std::fs::read_dir(options(Attaching::Auto).pins.folder()).unwrap();
    let tables = tables.filter(|e| e.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().starts_with("progs-")));
    assert_eq!(tables.count(), 1);
}

#[test]
fn without_its_rows_the_load_notices() {
    // The negative twin: the same probe sees a slot that is empty for a moment.
    space::enter();
    let (a, b) = (Pod::new("pod-a", A), Pod::new("pod-b", B));
    let mut dataplane = start();
    let load = Load::start(&a, &b);
    thread::sleep(Duration::from_millis(300));
    dataplane.remove_endpoint(2).unwrap();
    // A busy machine may keep the sender off its CPU for longer than any fixed time.
    let before = load.counts().sent.load(Relaxed);
    let begin = Instant::now();
    while load.counts().sent.load(Relaxed) < before + 200 && begin.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(10));
    }
    dataplane.put_endpoint(2, endpoint("pod-b", B)).unwrap();
    thread::sleep(Duration::from_millis(300));
    let counts = load.stop();
    assert!(counts.sent.load(Relaxed) > counts.received.load(Relaxed), "{counts:?}");
}

/// Programs of ours at the hooks: by links and by filters.
fn kinds(names: &[&str]) -> (usize, usize) {
    let (mut links, mut filters) = (0, 0);
    for name in names {
        for (direction, word) in [(TcAttachType::Ingress, "ingress"), (TcAttachType::Egress, "egress")] {
            links += SchedClassifier::query_tcx(space::ifindex(name), direction).unwrap().1.len();
            filters += space::run("tc", &format!("filter show dev {name} {word}")).matches("handle 0x6f73").count();
        }
    }
    (links, filters)
}

#[test]
fn attached_in_the_other_way_and_back_under_load_nothing_is_lost() {
    space::enter();
    let (a, b) = (Pod::new("pod-a", A), Pod::new("pod-b", B));
    drop(start());
    let load = Load::start(&a, &b);
    for attaching in [Attaching::Clsact, Attaching::Auto, Attaching::Clsact, Attaching::Clsact, Attaching::Auto] {
        let running = start_with(attaching);
        let wanted = if attaching == Attaching::Auto { (4, 0) } else { (0, 4) };
        let until = Instant::now() + Duration::from_secs(5);
        // The kernel takes a link away some time after its last reference went.
        while kinds(&["pod-a", "pod-b"]) != wanted && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(kinds(&["pod-a", "pod-b"]), wanted, "{attaching:?}");
        assert_eq!(running.check_endpoint(1, &endpoint("pod-a", A)).unwrap(), [""; 0]);
        thread::sleep(Duration::from_millis(300));
    }
    let counts = load.stop();
    let (sent, received) = (counts.sent.load(Relaxed), counts.received.load(Relaxed));
    let dropped: Vec<_> =
        start().snapshot().unwrap().drops.into_iter().filter(|(_, count)| count.packets != 0).collect();
    assert!(sent > 2000, "too little load to show anything: {sent}");
    assert_eq!(
        (sent - received, counts.failed.load(Relaxed)),
        (0, 0),
        "of {sent}; {dropped:?}; {}",
        own_losses(&[&a, &b])
    );
    assert!(counts.connected.load(Relaxed) > 50, "{counts:?}");
}

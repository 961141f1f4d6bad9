//! Maps that no single call reads. What the other commands take there is a matter of the bench; those about policy have their second here.

use std::{
    fs::OpenOptions,
    io::{BufWriter, Write as _},
    process::Command,
    time::{Duration, Instant},
};

use osmia_maps::{
    Access,
    catalogue::{self, Direction, Line, PodName, PolicyName, Ports, Reason, SetRule},
    layout::{
        Addr, Endpoint, FlowEntry,
        endpoint::{E_PRESENT, E_READY},
    },
    tables,
};

use crate::fixture::{
    GENERATION, Machine, NOW, Policed, Sizes, create, flow4, osmia,
    policed::{allow, head, key, lines, policy},
};

const ROWS: u32 = 10_000;

#[test]
fn of_ten_thousand_rows_none_is_missing() {
    let machine = Machine::new();
    machine.inside(|pins| {
        create(pins, Sizes { flows: 2 * ROWS, addresses: 2 * ROWS });
        let addresses: Vec<_> = (0..ROWS).map(|i| (Addr::v4((0x0a01_0000 + i).to_be_bytes()), i)).collect();
        tables::ENDPOINT_ADDR.open(pins, Access::ReadWrite).unwrap().put_all(&addresses).unwrap();
        let entry = FlowEntry { action: 1, target: 50, last_seen: NOW, created: NOW, ..FlowEntry::default() };
        let flows: Vec<_> =
            (0..ROWS).map(|i| (flow4((0x0a01_0000 + i).to_be_bytes(), 1, [10, 2, 0, 7], 80, 6), entry)).collect();
        tables::FLOW4.open(pins, Access::ReadWrite).unwrap().put_all(&flows).unwrap();
    });
    let dumped = machine.json(&["map", "dump", "endpoint_addr"]);
    assert_eq!(dumped["rows"].as_array().unwrap().len(), ROWS as usize);
    assert_eq!(machine.json(&["flow", "list"])["matched"], ROWS);
}

/// What `osmia` takes there grows with what it is asked, not with all that the catalogue knows.
#[test]
fn of_a_long_catalogue_no_command_keeps_more_than_it_was_asked_for() {
    const COOKIES: u32 = 1_000;
    /// Bytes of each one's text, together twice as many as a command may have.
    const TEXT: usize = 128 << 10;
    const MOST_KIB: usize = COOKIES as usize * TEXT / 2 / 1024;
    let machine = Policed::new();
    let text = "x".repeat(TEXT);
    let cookie = |n| Line::Cookie {
        cookie: 100_000 + n,
        reason: Reason::Rule { policy: policy("long"), direction: Direction::Ingress, rule: 0, text: text.clone() },
    };
    machine.write(&lines());
    let path = catalogue::path(&machine.run);
    let mut file = BufWriter::new(OpenOptions::new().append(true).open(&path).unwrap());
    for n in 0..COOKIES {
        serde_json::to_writer(&mut file, &cookie(n)).unwrap();
        file.write_all(b"\n").unwrap();
    }
    file.flush().unwrap();
    for (arguments, said) in [
        (&["explain", "shop/web-0", "shop/db-0", "5432/tcp"][..], "allowed"),
        (&["policy", "list"], "shop/db"),
        (&["policy", "show", "shop/db"], "in force"),
        (&["policy", "sets"], "isolated by"),
        (&["policy", "classes"], "PEERS"),
        (&["endpoint", "list"], "shop/web-0"),
    ] {
        let plain = osmia(arguments);
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -v {MOST_KIB} && exec \"$@\"")).arg("sh");
        command.arg(plain.get_program()).args(plain.get_args()).arg("--run").arg(&machine.run);
        let ended = machine.space.feed(&mut command, "").unwrap();
        let no_names = ended.stdout.contains("no names");
        assert!(ended.status.success() && ended.stdout.contains(said) && !no_names, "{arguments:?}: {}", ended.text());
    }
}

/// A hundred pods with a rule set each, of a thousand classes each, ten addresses a class; a catalogue of them and of as many policies as
/// a large cluster has.
#[test]
fn of_a_hundred_pods_and_a_hundred_thousand_verdicts_each_command_takes_less_than_a_second() {
    const SETS: u32 = 100;
    const CLASSES: u32 = 1_000;
    const POLICIES: u32 = 10_000;
    let machine = Policed::new();
    machine.inside(|pins| {
        let class = |i: u32| 1_000 + i % CLASSES;
        let peers: Vec<_> = (0..ROWS).map(|i| (Addr::v4((0x0a02_0000 + i).to_be_bytes()), class(i))).collect();
        tables::PEERS.open(pins, Access::ReadWrite).unwrap().put_all(&peers).unwrap();
        let pod = |n: u32| Endpoint {
            ifindex: 1_000 + n,
            flags: E_PRESENT | E_READY,
            v4: [10, 1, 1, n as u8],
            ingress_rules: 1_000 + n,
            ..Endpoint::default()
        };
        let pods: Vec<_> = (0..SETS).map(|n| (100 + n, pod(n))).collect();
        tables::ENDPOINTS.open(pins, Access::ReadWrite).unwrap().put_all(&pods).unwrap();
        // As many as the fixture's map has room for.
        let addresses: Vec<_> = pods.iter().take(40).map(|(slot, pod)| (Addr::v4(pod.v4), *slot)).collect();
        tables::ENDPOINT_ADDR.open(pins, Access::ReadWrite).unwrap().put_all(&addresses).unwrap();
        let pairs = (0..SETS).flat_map(|set| (0..CLASSES).map(move |i| (1_000 + set, class(i))));
        let rows = |(set, class)| [head(set, class, 2 * set, 0, [set, 0, 0]), (key(set, class, 6, 80, 0), allow(set))];
        let verdicts: Vec<_> = pairs.flat_map(rows).collect();
        tables::VERDICTS.open(pins, Access::ReadWrite).unwrap().put_all(&verdicts).unwrap();
    });
    let atom = |i| Line::Atom { number: i, text: format!("pods app=a{i}"), definition: serde_json::json!({"app": i}) };
    let class = |i| Line::Class { number: i, signature: vec![(i, 0)] };
    let set = |number: u32| Line::Set {
        number,
        direction: Direction::Ingress,
        policies: vec![policy(&format!("p{number}"))],
        isolation: 2 * number,
        rules: vec![SetRule {
            cookie: number,
            peers: Some((1_000..1_000 + CLASSES).collect()),
            ports: Some(vec![Ports { protocol: 6, first: 80, last: 80 }]),
            named: vec![],
        }],
        definition: serde_json::Value::Null,
    };
    let cookie = |number: u32| Line::Cookie {
        cookie: number,
        reason: Reason::Rule {
            policy: policy(&format!("p{number}")),
            direction: Direction::Ingress,
            rule: 0,
            text: "from many: tcp 80".into(),
        },
    };
    let of_classes = (1_000..1_000 + CLASSES).flat_map(|i| [atom(i), class(i)]);
    let of_sets = (1_000..1_000 + SETS).flat_map(|i| [set(i), cookie(i)]);
    let pod = |n| Line::Endpoint {
        slot: 100 + n,
        pod: Some(PodName { namespace: "shop".into(), name: format!("many-{n}") }),
    };
    let in_force = |n| Line::InForce {
        generation: GENERATION,
        at_ms: 0,
        took_us: 1,
        policies: vec![PolicyName { namespace: format!("namespace-{}", n % 100), ..policy(&format!("policy-{n}")) }],
    };
    let others = (0..SETS).map(pod).chain((0..POLICIES).map(in_force));
    machine.write(&lines().into_iter().chain(of_classes).chain(of_sets).chain(others).collect::<Vec<_>>());
    let list = machine.json(&["policy", "list"]);
    assert_eq!(list["policies"].as_array().unwrap().len(), (4 + SETS + POLICIES) as usize);

    assert_eq!(machine.json(&["policy", "sets", "1005"])["rows"].as_array().unwrap().len(), 2 * CLASSES as usize);
    let classes = machine.json(&["policy", "classes"]);
    let class = classes["classes"].as_array().unwrap().iter().find(|row| row["class"] == 1_007).unwrap().clone();
    assert_eq!(class["addresses"], 10);
    for command in [
        &["policy", "list"][..],
        &["policy", "show", "shop/db"],
        &["policy", "sets"],
        &["policy", "sets", "1005"],
        &["policy", "classes"],
        &["policy", "classes", "1007"],
        &["endpoint", "list"],
        &["drop"],
        &["explain", "shop/web-0", "shop/db-0", "5432/tcp"],
        &["explain", "shop/web-0", "shop/db-0", "5433/tcp"],
        &["explain", "10.2.0.7", "shop/many-7", "80/tcp"],
    ] {
        let took = || {
            let start = Instant::now();
            // Some are denied, which is an answer as well.
            assert!(matches!(machine.osmia(command).status.code(), Some(0 | 5 | 6)), "{command:?}");
            start.elapsed()
        };
        // The best of some: other tests run beside it.
        let best = (0..5).map(|_| took()).min().unwrap();
        assert!(best < Duration::from_secs(1), "{command:?}: {best:?}");
    }
}

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::*;

fn example() -> Catalogue {
    let policy = |name: &str| PolicyName { namespace: "a".into(), name: name.into(), uid: "u".into() };
    let direction = Direction::Ingress;
    let rule = SetRule { cookie: 3, peers: Some(vec![1]), ports: None, named: vec![(2, 6)] };
    let lines = [
        Line::Atom { number: 1, text: "pods app=a".into(), definition: serde_json::json!({"x": 1}) },
        Line::Class { number: 4, signature: vec![(1, 0), (2, 80)] },
        Line::Set {
            number: 5,
            direction,
            policies: vec![policy("p")],
            isolation: 2,
            rules: vec![rule],
            definition: serde_json::Value::Null,
        },
        Line::Cookie { cookie: 2, reason: Reason::Isolated { direction, policies: vec![policy("p")] } },
        Line::Cookie {
            cookie: 3,
            reason: Reason::Rule { policy: policy("p"), direction, rule: 0, text: "from pods app=a".into() },
        },
        Line::Generation { generation: 7, last: Last { atom: 2, class: 4, set: 5, cookie: 3 } },
        Line::InForce { generation: 7, at_ms: 1000, took_us: 250, policies: vec![policy("p"), policy("q")] },
        Line::InForce { generation: 8, at_ms: 2000, took_us: 50, policies: vec![] },
        Line::Refused { policy: policy("p"), parts: vec!["ingress[0].from[1]: no CIDR".into()] },
        Line::Behind { at_ms: 2500, why: "the map is full".into() },
        Line::CrowdedOut { now: Some(CrowdedOut { addresses: 3, lowest: [10, 0, 0, 9].into() }) },
        Line::Source { problems: vec!["pods: no answer".into()] },
        Line::Endpoint { slot: 1, pod: Some(PodName { namespace: "a".into(), name: "web-0".into() }) },
        Line::Endpoint { slot: 2, pod: None },
    ];
    let mut catalogue = Catalogue::default();
    lines.into_iter().for_each(|line| catalogue.take(line));
    catalogue
}

#[test]
fn the_shortest_lines_say_the_same() {
    let catalogue = example();
    let mut again = Catalogue::default();
    for line in catalogue.lines() {
        let text = serde_json::to_vec(&line).unwrap();
        again.take(serde_json::from_slice(&text).unwrap());
    }
    assert_eq!(again, catalogue);
}

#[test]
fn a_policy_made_anew_takes_the_place_of_the_one_of_its_name() {
    let mut catalogue = example();
    let anew = PolicyName { namespace: "a".into(), name: "p".into(), uid: "v".into() };
    catalogue.take(Line::InForce { generation: 9, at_ms: 3000, took_us: 1, policies: vec![anew.clone()] });
    assert_eq!(catalogue.policies.len(), 2);
    assert_eq!(catalogue.policies[&anew].generation, 9);
    assert!(catalogue.refused.is_empty(), "what was refused of the one before is history");
}

#[test]
fn what_is_wrong_is_said_until_it_is_no_more() {
    let mut catalogue = example();
    assert_eq!(catalogue.behind, Some(Behind { at_ms: 2500, why: "the map is full".into() }));
    let policy = catalogue.policies.keys().next().unwrap().clone();
    assert_eq!(catalogue.refused[&policy].len(), 1);
    // The same policy, mended.
    catalogue.take(Line::InForce { generation: 9, at_ms: 3000, took_us: 1, policies: vec![policy] });
    assert!(
        catalogue.refused.is_empty() && catalogue.behind.is_some(),
        "who came into force tells nothing of the rest"
    );
    catalogue.take(Line::CaughtUp);
    catalogue.take(Line::Source { problems: Vec::new() });
    catalogue.take(Line::CrowdedOut { now: None });
    assert!(catalogue.behind.is_none() && catalogue.crowded_out.is_none() && catalogue.source.is_empty());
}

#[test]
fn a_torn_last_line_is_left_out() {
    let file = std::env::temp_dir().join(format!("osm-catalogue-{}", std::process::id()));
    let mut text = Vec::new();
    for line in example().lines() {
        text.extend(serde_json::to_vec(&line).unwrap());
        text.push(b'\n');
    }
    let whole = text.len();
    for torn in [&b"{\"gone\":{\"cookies\":[2]}}"[..], b"{\"gone\":{\"coo"] {
        text.truncate(whole);
        text.extend(torn);
        fs::write(&file, &text).unwrap();
        assert_eq!(Catalogue::read(&file).unwrap(), example());
    }
    fs::remove_file(&file).unwrap();
}

/// An index of a file with this text, whose name is gone.
fn index(text: &[u8]) -> Index {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("osm-index-{}-{count}", std::process::id()));
    fs::write(&file, text).unwrap();
    let index = Index::read(&file);
    fs::remove_file(&file).unwrap();
    index.unwrap()
}

/// What an index says of everything that it has.
fn asked(index: &Index) -> Catalogue {
    let atom = |n: u32| Some((n, (index.atom(n)?, serde_json::Value::Null)));
    let set = |n: u32| {
        let SetHead { direction, policies, isolation, len } = index.set(n)?.clone();
        let rules = index.rules(n)?;
        assert_eq!(rules.len(), len);
        Some((n, Set { direction, policies, isolation, rules, definition: serde_json::Value::Null }))
    };
    let numbers = || 0..100;
    Catalogue {
        atoms: numbers().filter_map(atom).collect(),
        classes: numbers().filter_map(|n| Some((n, index.class(n)?))).collect(),
        sets: numbers().filter_map(set).collect(),
        cookies: numbers().filter_map(|n| Some((n, index.reason(n)?.clone()))).collect(),
        ..index.rest().clone()
    }
}

/// Without what the agent alone needs.
fn for_people(mut catalogue: Catalogue) -> Catalogue {
    catalogue.atoms.values_mut().for_each(|(_, definition)| *definition = serde_json::Value::Null);
    catalogue.sets.values_mut().for_each(|set| set.definition = serde_json::Value::Null);
    catalogue
}

#[test]
fn an_index_says_the_same() {
    let text = |lines: &[Line]| -> Vec<u8> {
        lines.iter().flat_map(|line| [serde_json::to_vec(line).unwrap(), b"\n".to_vec()].concat()).collect()
    };
    let all = text(&example().lines().collect::<Vec<_>>());
    let gone = text(&[
        Line::Gone { atoms: vec![1], classes: vec![4], sets: vec![5], cookies: vec![2] },
        Line::NoEndpoint { slot: 1 },
        Line::CaughtUp,
    ]);
    let again = text(&[Line::Atom { number: 1, text: "pods app=b".into(), definition: serde_json::Value::Null }]);
    let late = text(&[8, 6, 7].map(|number| Line::Class { number, signature: vec![(number, 1)] }));
    let spaced = String::from_utf8(all.clone()).unwrap().replace(":", ": ").into_bytes();
    let newer = b"{\"weather\":{\"fair\":true}}\n".to_vec();
    let torn = b"{\"class\":{\"number\":77,\"sig".to_vec();
    let bad = b"{\"class\":{\"number\":77,\"sig\n".to_vec();
    for (what, parts) in [
        ("all", vec![&all]),
        ("gone", vec![&all, &gone]),
        ("said twice", vec![&all, &again]),
        ("gone and said again", vec![&all, &gone, &again]),
        ("said again and gone", vec![&all, &again, &gone, &gone]),
        ("not in order", vec![&late, &all, &gone, &late]),
        ("as nobody writes it", vec![&spaced]),
        ("a newer agent's", vec![&newer, &all]),
        ("torn", vec![&all, &torn]),
        ("bad in its midst", vec![&all, &bad, &gone]),
        ("nothing", vec![]),
    ] {
        let text: Vec<u8> = parts.into_iter().flatten().copied().collect();
        let (index, read) = (index(&text), Catalogue::of(&text));
        let mut short = Vec::new();
        index.write_shortest(&mut short).unwrap();
        assert_eq!(Catalogue::of(&short), read, "{what}, made shorter");
        assert_eq!(asked(&index), for_people(read), "{what}");
    }
    let index = index(&all);
    assert_eq!((index.classes().collect::<Vec<_>>(), index.sets().collect::<Vec<_>>()), (vec![4], vec![5]));
}

#[test]
fn a_damaged_line_is_not_copied_into_a_shorter_file() {
    let line = |number| serde_json::to_string(&Line::Class { number, signature: vec![(number, 1)] }).unwrap() + "\n";
    let text = [line(1), line(2).replace("[[", "[!"), line(3)].concat();
    let mut short = Vec::new();
    let error = index(text.as_bytes()).write_shortest(&mut short).unwrap_err();
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn an_index_of_the_beginning_of_a_file_knows_no_more() {
    let line = |number| serde_json::to_string(&Line::Class { number, signature: vec![(number, 1)] }).unwrap() + "\n";
    let path = std::env::temp_dir().join(format!("osm-beginning-{}", std::process::id()));
    fs::write(&path, [line(1), line(2), line(3)].concat()).unwrap();
    let file = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let index = Index::of(file, line(1).len() as u64 + line(2).len() as u64).unwrap();
    assert_eq!(index.classes().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn an_index_finds_lines_of_any_length() {
    // More than is read at a time; some alone are.
    let length = |n: u32| if n.is_multiple_of(97) { 300_000 } else { 100 + 7 * (n as usize % 911) };
    let word = |n: u32| n.to_string().repeat(length(n));
    let line = |number| Line::Atom { number, text: word(number), definition: serde_json::Value::Null };
    let mut text = Vec::new();
    for number in 1..=400 {
        text.extend(serde_json::to_vec(&line(number)).unwrap());
        text.push(b'\n');
    }
    let index = index(&text);
    for number in (1..=400).chain([300, 3, 97, 400]) {
        assert!(index.atom(number) == Some(word(number)), "{number}");
    }
    assert_eq!((index.atom(0), index.atom(401)), (None, None));
}

#[test]
fn an_index_reads_no_line_that_nobody_asks_for() {
    let index = index(
        b"{\"class\":{\"number\":1,\"signature\":[[1,0]]}}\n{\"class\":{\"number\":2,no JSON at all}}\n{\"class\":{\"number\":3,\"signature\":[]}}\n",
    );
    assert_eq!((index.class(1), index.class(2), index.class(3)), (Some(vec![(1, 0)]), None, Some(vec![])));
    assert_eq!(index.classes().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn what_is_written_over_a_line_is_not_taken_for_it() {
    let path = std::env::temp_dir().join(format!("osm-over-{}", std::process::id()));
    let text = |number: u32, text: &str| {
        let line = Line::Atom { number, text: text.into(), definition: serde_json::Value::Null };
        [serde_json::to_vec(&line).unwrap(), b"\n".to_vec()].concat()
    };
    fs::write(&path, [text(1, "a"), text(2, "b")].concat()).unwrap();
    let index = Index::read(&path).unwrap();
    fs::write(&path, text(3, "c")).unwrap();
    let says = [index.atom(1), index.atom(2), index.atom(3)];
    fs::remove_file(&path).unwrap();
    assert_eq!(says, [None, None, None]);
}

#[test]
fn what_a_newer_agent_says_beside_is_left_out() {
    let whole = |lines: &[&str]| Catalogue::of(format!("{}\n", lines.join("\n")).as_bytes());
    let class = |n: u32| format!("{{\"class\":{{\"number\":{n},\"signature\":[]}}}}");
    let newer = whole(&[&class(1), "{\"weather\":{\"fair\":true}}", &class(2)]);
    assert_eq!(newer.classes.keys().collect::<Vec<_>>(), [&1, &2]);
    let torn = whole(&[&class(1), "{\"weather\":{\"fa", &class(2)]);
    assert_eq!(torn.classes.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn forgetting_takes_no_longer_than_learning() {
    let many = 40_000;
    let took = || {
        let mut catalogue = Catalogue::default();
        let begin = Instant::now();
        for number in 1..=many {
            catalogue.take(Line::Class { number, signature: vec![(number, 0)] });
        }
        let learnt = begin.elapsed();
        let begin = Instant::now();
        catalogue.take(Line::Gone { atoms: vec![], classes: (1..=many).collect(), sets: vec![], cookies: vec![] });
        assert!(catalogue.classes.is_empty());
        (begin.elapsed(), learnt)
    };
    // Of the square of their number it would be hundreds of times as long, each time; a machine that does something else meanwhile is
    // so once.
    let tries: Vec<_> = (0..5).map(|_| took()).collect();
    assert!(tries.iter().any(|(forgot, learnt)| *forgot < 20 * *learnt), "{tries:?}");
}

#[test]
fn what_no_row_has_any_more_is_forgotten() {
    let mut catalogue = example();
    catalogue.take(Line::Gone { atoms: vec![1], classes: vec![4], sets: vec![5], cookies: vec![2] });
    assert!(catalogue.atoms.is_empty() && catalogue.classes.is_empty() && catalogue.sets.is_empty());
    assert_eq!(catalogue.cookies.len(), 1);
    catalogue.take(Line::NoEndpoint { slot: 1 });
    assert_eq!(catalogue.endpoints.keys().collect::<Vec<_>>(), [&2]);
    catalogue.take(Line::NoPolicy { namespace: "a".into(), name: "q".into() });
    assert_eq!(catalogue.policies.keys().map(|policy| policy.name.as_str()).collect::<Vec<_>>(), ["p"]);
    assert_eq!(catalogue.last, Last { atom: 2, class: 4, set: 5, cookie: 3 }, "numbers are never given again");
}

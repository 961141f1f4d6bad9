//! `policy`, and what `endpoint list` and `drop` say of policies.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use osmia_maps::{
    Access,
    catalogue::{self, CrowdedOut, Direction, Last, Line, Reason},
    layout::Endpoint,
    tables,
};
use rustix::mount::{MountFlags, mount};
use serde_json::{Value, json};

use crate::fixture::{
    GENERATION, Machine, Policed, base,
    policed::{DB_ISOLATED, lines, policy},
};

fn rows<'a>(document: &'a Value, list: &str) -> &'a [Value] {
    document[list].as_array().unwrap_or_else(|| panic!("{list} is not in {document}"))
}

#[test]
fn every_policy_is_listed_with_what_it_isolates_and_since_when() {
    let machine = Policed::new();
    let list = machine.json(&["policy", "list"]);
    let [idle, db, deny, web] = rows(&list, "policies") else { panic!("{list}") };
    assert_eq!((&idle["namespace"], &idle["name"], &idle["isolates"]), (&json!("other"), &json!("idle"), &json!([])));
    assert_eq!(idle["endpoints"], json!([]));
    assert_eq!((&db["isolates"], &deny["isolates"]), (&json!(["ingress"]), &json!(["ingress"])));
    assert_eq!(
        db["endpoints"],
        json!([{"slot": 2, "pod": "shop/db-0", "isolated": ["ingress"], "over_budget": false}])
    );
    assert_eq!((&web["isolates"], &web["uid"]), (&json!(["egress"]), &json!("uid-web")));
    assert_eq!(
        (&web["generation"], &web["since"], &web["took_us"]),
        (&json!(10), &json!("2026-11-30T09:33:54Z"), &json!(250))
    );
    assert_eq!(list["stale"], json!([]));
    let text = machine.text(&["policy", "list"]);
    let line = text.lines().find(|line| line.starts_with("shop/db ")).unwrap();
    assert!(line.contains("ingress") && line.contains("250 us") && line.ends_with("shop/db-0"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("other/idle") && line.ends_with("none here")), "{text}");
}

#[test]
fn a_policy_is_in_force_or_not_by_its_first_line() {
    let machine = Policed::new();
    fs::write(machine.run.join("heartbeat"), "").unwrap();
    // The whole output where there is no line: a run that failed once said nothing else.
    let first = |policy: &str| {
        let ended = machine.osmia(&["policy", "show", policy]);
        let line = ended.stdout.lines().next().filter(|_| ended.status.success()).map(str::to_owned);
        line.unwrap_or_else(|| panic!("policy show {policy}: {}: {}", ended.status, ended.text()))
    };
    let said = first("shop/db");
    assert!(
        said.starts_with("shop/db is in force on this node: generation 10, since 2026-11-30T09:33:54Z ("),
        "{said}"
    );
    assert!(said.ends_with(" ago), 250 us after the change; it isolates 1 pod of this node"), "{said}");
    assert!(first("other/idle").ends_with("it isolates no pod of this node"));
    let ended = machine.osmia(&["policy", "show", "shop/none"]);
    assert_eq!(ended.status.code(), Some(4));
    assert!(ended.stderr.contains("no NetworkPolicy shop/none is in force on this node"), "{}", ended.stderr);

    // The next one is named in the catalogue, and its rows are on their way.
    let next = Line::Generation { generation: GENERATION + 1, last: Last::default() };
    machine.write(&lines().into_iter().chain([next]).collect::<Vec<_>>());
    let before =
        "is not in force on this node as it was told last: generation 13 is being written; before that: generation 10,";
    assert!(first("shop/db").starts_with(&format!("shop/db {before}")), "{}", first("shop/db"));
    let unborn: Vec<Line> = lines().into_iter().filter(|line| !matches!(line, Line::InForce { .. })).collect();
    machine.write(&unborn);
    let unborn =
        "shop/db is not in force on this node as it was told last: it is being written; it isolates 1 pod of this node";
    assert_eq!(first("shop/db"), unborn);
    assert_eq!(machine.json(&["policy", "show", "shop/db"])["in_force"], false);
}

/// The catalogue and these lines.
fn with(machine: &Policed, more: impl IntoIterator<Item = Line>) {
    machine.write(&lines().into_iter().chain(more).collect::<Vec<_>>());
}

/// What `status` says, red lines with `!`.
fn problems(machine: &Policed) -> Vec<String> {
    let (code, status) = machine.status(&[]);
    let said: Vec<String> = rows(&status, "problems")
        .iter()
        .map(|row| format!("{}{}", if row["level"] == "error" { '!' } else { '?' }, row["text"].as_str().unwrap()))
        .collect();
    assert_eq!(code == 7, said.iter().any(|line| line.starts_with('!')), "{status}");
    said
}

#[test]
fn what_was_told_and_is_not_in_force_turns_policy_and_status_red() {
    let machine = Policed::new();
    let red = |words: &str| problems(&machine).iter().any(|line| line.starts_with('!') && line.contains(words));
    let show = || machine.json(&["policy", "show", "shop/db"]);
    assert_eq!((&show()["in_force"], &show()["missing"]), (&json!(true), &json!([])));
    let ours = ["refused", "generation", "room", "provisional"];
    let said = problems(&machine);
    assert!(!said.iter().any(|line| line.starts_with('!') && ours.iter().any(|word| line.contains(word))), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("?provisional") && line.ends_with(": shop/late-0")), "{said:?}");
    let (_, status) = machine.status(&[]);
    let counted = &status["policy"];
    let of = |name: &str| counted[name].as_u64().unwrap();
    assert_eq!((of("generation"), of("policies"), of("refused_in_part")), (GENERATION, 4, 0), "{counted}");
    assert_eq!((of("isolated"), of("provisional"), of("unmanaged"), of("open")), (2, 1, 1, 0), "{counted}");
    let text = machine.osmia(&["status"]).stdout;
    let line = text.lines().find(|line| line.starts_with("  policy")).unwrap();
    assert!(
        line.contains("generation 12 in force since 2026-11-30T09:36:40Z (")
            && line.contains("pods: 2 isolated, 1 provisional"),
        "{line}"
    );

    // A refusal that lasts, and one of this moment.
    let behind = |at_ms| Line::Behind { at_ms, why: "map verdicts is full".into() };
    with(&machine, [behind(1_796_031_500_000)]);
    assert!(
        red("a change of policy has been refused and generation 12 is in force instead"),
        "{:?}",
        problems(&machine)
    );
    let shown = show();
    assert_eq!(shown["in_force"], false);
    assert!(shown["missing"][0].as_str().unwrap().ends_with("has been refused: map verdicts is full"), "{shown}");
    let ended = machine.osmia(&["policy", "show", "shop/none"]);
    assert!(ended.stderr.contains("a change of policy has been refused: map verdicts is full"), "{}", ended.stderr);
    with(&machine, [behind(u64::MAX)]);
    let said = problems(&machine);
    assert!(said.iter().any(|line| line.starts_with("?for 0.0s a change of policy has been refused")), "{said:?}");
    with(&machine, [behind(1_796_031_500_000), Line::CaughtUp]);
    assert_eq!(show()["in_force"], true);

    let lowest = [10, 2, 0, 7].into();
    with(&machine, [Line::CrowdedOut { now: Some(CrowdedOut { addresses: 3, lowest }) }]);
    assert!(red("3 addresses of pods that rules speak of have no room, from 10.2.0.7 on"), "{:?}", problems(&machine));

    // A generation that nobody finished.
    with(&machine, [Line::Generation { generation: GENERATION + 1, last: Last::default() }]);
    // However long this machine takes to look at it.
    let file = fs::File::options().append(true).open(catalogue::path(&machine.run)).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(600)).unwrap();
    let said = problems(&machine);
    assert!(said.iter().any(|line| line == "?generation 13 of the policies is being written"), "{said:?}");
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    assert!(red("generation 13 of the policies was begun"), "{:?}", problems(&machine));

    // What the source cannot tell.
    with(&machine, [Line::Source { problems: vec!["pods: no answer".into()] }]);
    let said = problems(&machine);
    assert!(
        said.iter().any(|line| line.starts_with("?the source cannot tell all") && line.ends_with("pods: no answer")),
        "{said:?}"
    );
    // A policy may be another by now, or there.
    with(&machine, [Line::Source { problems: vec!["networkpolicies: 1 waits".into(), "pods: no answer".into()] }]);
    let shown = show();
    assert_eq!(shown["in_force"], true);
    let why = "the source cannot tell all, what it said last holds: networkpolicies: 1 waits; 1 more in `osmia status`";
    assert_eq!(shown["stale"].as_array().unwrap().last().unwrap(), why);
    let ended = machine.osmia(&["policy", "show", "shop/none"]);
    assert!(ended.stderr.trim_end().ends_with(why), "{}", ended.stderr);
}

#[test]
fn a_full_run_folder_is_red_since_no_change_can_be_written() {
    let machine = Policed::new();
    let said = || problems(&machine).into_iter().find(|line| line.starts_with("!the run folder"));
    assert_eq!(said(), None);
    let run = machine.run.clone();
    let text = fs::read(catalogue::path(&run)).unwrap();
    machine
        .space
        .run(|| {
            mount("tmpfs", &run, "tmpfs", MountFlags::empty(), Some(c"size=256k")).unwrap();
            fs::write(catalogue::path(&run), text).unwrap();
            assert!(fs::write(run.join("filler"), vec![0; 1 << 20]).is_err(), "it is not full");
        })
        .unwrap();
    assert_eq!(
        said().unwrap(),
        format!(
            "!the run folder {} is full: no change of policy comes into force until there is room on it",
            machine.run.display()
        )
    );
    let run = machine.run.clone();
    machine.space.run(|| fs::remove_file(run.join("filler")).unwrap()).unwrap();
    assert_eq!(said(), None);
}

#[test]
fn what_the_api_would_refuse_of_a_policy_is_shown_with_it() {
    let machine = Policed::new();
    let parts = ["spec.ingress[0].from[1]: no CIDR", "spec.policyTypes[1]: \"x\" is neither Ingress nor Egress"];
    with(&machine, [Line::Refused { policy: policy("db"), parts: parts.map(Into::into).into() }]);
    let shown = machine.json(&["policy", "show", "shop/db"]);
    assert_eq!((&shown["refused"], &shown["in_force"]), (&json!(parts), &json!(true)));
    let text = machine.text(&["policy", "show", "shop/db"]);
    for part in parts {
        let line = format!("! the API would refuse this part, which allows nothing: {part}");
        assert!(text.lines().any(|said| said == line), "{line} is not in\n{text}");
    }
    let list = machine.json(&["policy", "list"]);
    let refused: Vec<&Value> = rows(&list, "policies").iter().map(|row| &row["refused"]).collect();
    assert_eq!(refused, [&json!([]), &json!(parts), &json!([]), &json!([])]);
    let said = problems(&machine);
    assert!(
        said.iter().any(|line| line.starts_with("!NetworkPolicy shop/db has 2 parts that the API would refuse")),
        "{said:?}"
    );
}

#[test]
fn a_policy_that_is_over_the_budget_on_a_pod_is_not_in_force() {
    let machine = Policed::new();
    let over =
        Reason::OverBudget { direction: Direction::Ingress, policies: vec![policy("db"), policy("default-deny")] };
    with(&machine, [Line::Cookie { cookie: DB_ISOLATED, reason: over }]);
    let shown = machine.json(&["policy", "show", "shop/db"]);
    assert_eq!((&shown["in_force"], &shown["endpoints"][0]["over_budget"]), (&json!(false), &json!(true)));
    let why = "its rules need more rows than there is room for on shop/db-0, isolated instead";
    assert_eq!(shown["missing"], json!([why]));
    assert_eq!(machine.json(&["policy", "show", "shop/web"])["in_force"], true, "of another pod");
    let said = problems(&machine);
    assert!(said.iter().any(|line| line.starts_with("!isolated, since their rules need more rows")), "{said:?}");
}

#[test]
fn a_dead_agent_is_said_since_it_follows_no_change() {
    let machine = Policed::new();
    let show = machine.json(&["policy", "show", "shop/db"]);
    assert_eq!(show["stale"], json!(["the agent is not running: what was changed since is not in force"]));
    fs::write(machine.run.join("heartbeat"), "").unwrap();
    assert_eq!(machine.json(&["policy", "show", "shop/db"])["stale"], json!([]));
}

#[test]
fn a_policys_rules_have_what_they_let_pass_and_its_isolation_what_it_kept_out() {
    let machine = Policed::new();
    let show = machine.json(&["policy", "show", "shop/db"]);
    let [from_web, from_range] = rows(&show, "rules") else { panic!("{show}") };
    assert_eq!(from_web["text"], "from pods app=web: tcp 5432");
    // Both directions of the one flow.
    assert_eq!((&from_web["flows"], &from_web["packets"], &from_web["bytes"]), (&json!(1), &json!(17), &json!(5700)));
    assert_eq!(
        (&from_range["rule"], &from_range["packets"], &from_range["cookie"]),
        (&json!(1), &json!(0), &json!(12))
    );
    let [drops] = rows(&show, "drops") else { panic!("{show}") };
    assert_eq!((&drops["packets"], &drops["flows"], &drops["direction"]), (&json!(7), &json!(2), &json!("ingress")));
    assert_eq!(drops["isolated_by"], json!(["shop/db", "shop/default-deny"]));
    // Who has no rules still drops.
    let deny = machine.json(&["policy", "show", "shop/default-deny"]);
    assert_eq!((rows(&deny, "rules").len(), &deny["drops"][0]["packets"]), (0, &json!(7)));
}

#[test]
fn drops_are_by_policy() {
    let machine = Policed::new();
    let drops = machine.json(&["drop"]);
    let sums: Vec<(&Value, &Value)> =
        rows(&drops, "policies").iter().map(|row| (&row["policy"], &row["packets"])).collect();
    assert_eq!(
        sums,
        [(&json!("isolated by shop/db, shop/default-deny"), &json!(7)), (&json!("isolated by shop/web"), &json!(1))]
    );
    let other = rows(&drops, "rows").iter().find(|row| row["reason"] == "UNOWNED").unwrap();
    assert_eq!((&other["policy"], &other["isolated_by"]), (&Value::Null, &json!([])));

    let of = |policy: &str| machine.json(&["drop", "--policy", policy]);
    assert_eq!(rows(&of("shop/default-deny"), "rows").len(), 2);
    let web = of("shop/web");
    let [row] = rows(&web, "rows") else { panic!("{web}") };
    assert_eq!((&row["reason"], &row["isolated_by"]), (&json!("POLICY_EGRESS"), &json!(["shop/web"])));
    assert_eq!(rows(&of("shop/none"), "rows").len(), 0);
    let text = machine.text(&["drop", "--policy", "shop/web"]);
    assert!(text.contains("isolated by shop/web") && !text.contains("UNOWNED"), "{text}");
    assert!(text.contains("the last 1 of 1 flows"), "{text}");

    machine.forget();
    let text = machine.text(&["drop"]);
    assert!(text.starts_with("? no names: ") && text.contains("unknown to the catalogue (cookie 10)"), "{text}");
}

#[test]
fn endpoints_have_pods_and_what_isolates_them() {
    let machine = Policed::new();
    let list = machine.json(&["endpoint", "list"]);
    let said: Vec<Value> =
        rows(&list, "endpoints").iter().map(|row| json!([row["pod"], row["isolated"], row["policy"]])).collect();
    assert_eq!(
        said,
        [
            json!(["shop/web-0", ["egress"], null]),
            json!(["shop/db-0", ["ingress"], null]),
            json!([null, [], "unmanaged"]),
            json!(["shop/late-0", ["ingress", "egress"], "provisional"]),
        ]
    );
    assert!(machine.text(&["endpoint", "list"]).starts_with("SLOT  POD "));

    // Shut while its rules are written: a rule set that the catalogue does not name, with a row that says why.
    machine.inside(|pins| {
        let table = tables::ENDPOINTS.open(pins, Access::ReadWrite).unwrap();
        let row = table.get(&2).unwrap().unwrap();
        table.put(&2, &Endpoint { ingress_rules: 1, ..row }).unwrap();
        tables::VERDICTS.open(pins, Access::ReadWrite).unwrap().put_all(&[base(1, 1)]).unwrap();
    });
    let list = machine.json(&["endpoint", "list"]);
    assert_eq!(list["endpoints"][1]["policy"], "unknown");
    assert_eq!(
        list["stale"],
        json!(["the catalogue does not know rule set 1 of shop/db-0: unknown to the catalogue (cookie 1)"])
    );
    let over = Reason::OverBudget { direction: Direction::Ingress, policies: vec![policy("db")] };
    machine.write(&lines().into_iter().chain([Line::Cookie { cookie: 1, reason: over }]).collect::<Vec<_>>());
    assert_eq!(machine.json(&["endpoint", "list"])["endpoints"][1]["policy"], "over_budget");
    let (code, document) = machine.explain(&["shop/web-0", "shop/db-0", "5432/tcp"]);
    let ingress = &document["packets"][0]["ingress"];
    assert_eq!((code, &ingress["policies"], &ingress["nearest"]), (5, &json!(["shop/db"]), &Value::Null), "{document}");
    let changing = Line::Cookie { cookie: 1, reason: Reason::Changing };
    machine.write(&lines().into_iter().chain([changing]).collect::<Vec<_>>());
    assert_eq!(machine.json(&["endpoint", "list"])["endpoints"][1]["policy"], "changing");
    let (code, document) = machine.explain(&["shop/web-0", "shop/db-0", "5432/tcp"]);
    let ingress = &document["packets"][0]["ingress"];
    assert_eq!(
        (code, &ingress["reason"]),
        (5, &json!("shut while its rules were written (osmia status says if it lasts)")),
        "{document}"
    );
    let text = machine.text(&["policy", "list"]);
    assert!(
        text.contains("? the catalogue does not know rule set 1 of shop/db-0: shut while its rules were"),
        "{text}"
    );
}

#[test]
fn a_rule_set_has_its_rules_and_rows_in_words() {
    let machine = Policed::new();
    let list = machine.json(&["policy", "sets"]);
    let set = rows(&list, "sets").iter().find(|row| row["set"] == 3).unwrap();
    assert_eq!(
        (&set["direction"], &set["policies"], &set["endpoints"], &set["rules"], &set["rows"]),
        (&json!("ingress"), &json!(["shop/db", "shop/default-deny"]), &json!(1), &json!(2), &json!(5))
    );
    // The catalogue does not know every set that has rows.
    let odd = rows(&list, "sets").iter().find(|row| row["set"] == 9).unwrap();
    assert_eq!((&odd["policies"], &odd["isolation"]), (&Value::Null, &json!("unknown to the catalogue (cookie 99)")));

    let one = machine.json(&["policy", "sets", "3"]);
    assert_eq!(one["endpoints"], json!([{"slot": 2, "pod": "shop/db-0"}]));
    let [web, range] = rows(&one, "rules") else { panic!("{one}") };
    assert_eq!((&web["peers"], &web["ports"]), (&json!(["pods app=web"]), &json!(["tcp 5432"])));
    assert_eq!(range["ports"], json!(["tcp 8080-8087"]));
    let row = |key: &str| rows(&one, "rows").iter().find(|row| row["key_text"] == key).unwrap().clone();
    let allowed = row("3 7 tcp 5432");
    assert_eq!(
        (&allowed["peer"], &allowed["verdict"], &allowed["reason"]),
        (&json!(["pods app=web"]), &json!("allow"), &json!("shop/db ingress[0]: from pods app=web: tcp 5432"))
    );
    assert_eq!((&row("3 9")["verdict"], &row("3 9 tcp 8080-8087")["ports"]), (&json!("deny"), &json!("8080-8087")));
    assert_eq!((&row("3 9")["narrower"], &row("3 9")["fragments"]), (&json!("13"), &json!("tcp:12")));
    assert_eq!((&row("3 0")["peer"], &row("3 0")["cookie"]), (&json!(["anybody else"]), &json!(10)));
    let text = machine.text(&["policy", "sets", "3"]);
    assert!(text.starts_with("rule set 3: ingress of shop/db, shop/default-deny\n"), "{text}");
    assert_eq!(machine.osmia(&["policy", "sets", "77"]).status.code(), Some(4));
    let named = machine.json(&["policy", "sets", "4"]);
    assert_eq!(named["rules"][0]["named_ports"], json!(["tcp port pg of pods app=db"]));
}

#[test]
fn a_class_has_its_peers_in_words_and_its_addresses() {
    let machine = Policed::new();
    let list = machine.json(&["policy", "classes"]);
    let class = |number: u32| rows(&list, "classes").iter().find(|row| row["class"] == number).unwrap();
    assert_eq!(
        (&class(7)["addresses"], &class(7)["ranges"], &class(7)["peers"]),
        (&json!(2), &json!(0), &json!(["pods app=web"]))
    );
    assert_eq!(class(8)["peers"], json!(["pods app=db", "tcp port pg of pods app=db = 5432"]));
    assert_eq!((&class(9)["ranges"], &class(0)["ranges"]), (&json!(1), &json!(1)));
    assert_eq!(class(2)["peers"], "unknown to the catalogue");
    let one = machine.json(&["policy", "classes", "7"]);
    assert_eq!(one["addresses"], json!([{"address": "10.1.0.5"}, {"address": "fd00:1::5"}]));
    assert_eq!(machine.json(&["policy", "classes", "9"])["ranges"], json!([{"range": "198.51.100.0/24"}]));
    assert_eq!(machine.osmia(&["policy", "classes", "77"]).status.code(), Some(4));
}

#[test]
fn a_node_without_policies_says_so() {
    let machine = Machine::with_rows();
    fs::write(osmia_maps::catalogue::path(&machine.run), "").unwrap();
    let text = machine.text(&["policy", "list"]);
    assert!(text.ends_with("no NetworkPolicies\n"), "{text}");
}

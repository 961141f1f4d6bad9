//! What an operator of a living node sees of policy: status, policy show, metrics, agent dead or alive.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::Encap;
use serde_json::Value;

use crate::add::metric;
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(20);

/// Exit code and document of a command on the first node.
fn ask(stage: &Stage, arguments: &[&str]) -> (i32, Value) {
    let ended = stage.node(0).osmia(&[arguments, &["--json"]].concat()).unwrap();
    let document = serde_json::from_str(&ended.stdout);
    (ended.status.code().unwrap(), document.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", ended.text())))
}

/// Exit code of `status` and its problems, red ones with `!`.
fn status(stage: &Stage) -> (i32, Vec<String>) {
    let (code, document) = ask(stage, &["status"]);
    let line = |problem: &Value| {
        let mark = if problem["level"] == "error" { '!' } else { '?' };
        format!("{mark}{}", problem["text"].as_str().unwrap())
    };
    (code, document["problems"].as_array().unwrap().iter().map(line).collect())
}

/// Waits until `status` says so.
fn until(stage: &Stage, what: &str, so: impl Fn(i32, &[String]) -> bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        let (code, problems) = status(stage);
        if so(code, &problems) {
            return;
        }
        assert!(Instant::now() < until, "{PATIENCE:?} and not yet {what}: {code}, {problems:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn status_show_and_metrics_follow_what_is_in_force() {
    let stage = Stage::new(Encap::Auto, 1);
    stage.namespace("shop", &[]);
    let db = stage.pod(0, "shop", "db", &[("app", "db")]);
    let good = "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 192.0.2.0/24}}]}]}";
    stage.policy("shop", "db", good);
    until(&stage, "well", |code, problems| code == 0 && problems.is_empty());
    let show = || ask(&stage, &["policy", "show", "shop/db"]).1;
    assert_eq!((&show()["in_force"], &show()["missing"]), (&Value::Bool(true), &Value::Array(vec![])), "{}", show());

    // Counted as they are written, and as they are in the maps.
    let maps = ask(&stage, &["map", "list"]).1;
    for map in ["peers", "peer_blocks", "verdicts"] {
        let listed = maps["maps"].as_array().unwrap().iter().find(|row| row["map"] == map).unwrap();
        let counted = metric(&stage, &format!("osmia_policy_rows{{map=\"{map}\"}}"));
        assert!(counted > 0.0 && listed["used"].as_f64() == Some(counted), "{map}: {counted} counted, {listed}");
    }
    assert!(metric(&stage, "osmia_policy_delay_seconds_count{kind=\"policy\"}") >= 1.0);
    // From the arrival on: the folder's own wait for a file to be whole, 20 ms, is in it.
    let delays =
        ["count", "sum"].map(|of| metric(&stage, &format!("osmia_policy_delay_seconds_{of}{{kind=\"policy\"}}")));
    assert!(delays[1] / delays[0] >= 0.02, "{delays:?}");

    // A part that the API would refuse.
    let bad = "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 192.0.2.0/99}}]}]}";
    stage.policy("shop", "db", bad);
    let (code, problems) = status(&stage);
    let red = "!NetworkPolicy shop/db has 1 part that the API would refuse";
    assert!(code == 7 && problems.iter().any(|line| line.starts_with(red)), "{code}, {problems:?}");
    let part = show()["refused"][0].as_str().unwrap().to_owned();
    assert!(part.starts_with("spec.ingress[0].from[1]: ") && part.contains("192.0.2.0/99"), "{part}");
    stage.policy("shop", "db", good);
    until(&stage, "mended", |code, problems| code == 0 && problems.is_empty());

    // A manifest that cannot be read is no fault of what is in force.
    stage.lab.write("bad.yaml", "kind: [").unwrap();
    let silent = "?the source cannot tell all";
    until(&stage, "the bad manifest said", |code, problems| {
        code == 0 && problems.iter().any(|line| line.starts_with(silent))
    });
    stage.lab.remove("bad.yaml").unwrap();
    until(&stage, "the bad manifest forgotten", |code, problems| code == 0 && problems.is_empty());

    // What an agent of before could not finish: the next one that can says so.
    let node = stage.node(0);
    drop(node.kill_agent());
    assert_eq!(ask(&stage, &["policy", "show", "shop/db"]).1["in_force"], true, "agent dead, rows alive");
    let file = osmia_maps::catalogue::path(&node.paths.run);
    let mut text = fs::read(&file).unwrap();
    text.extend(b"{\"behind\":{\"at_ms\":1000,\"why\":\"map verdicts is full\"}}\n");
    fs::write(&file, text).unwrap();
    let (code, problems) = status(&stage);
    assert!(
        code == 7 && problems.iter().any(|line| line.contains("a change of policy has been refused")),
        "{problems:?}"
    );
    assert_eq!(show()["in_force"], false);
    stage.lab.start_agents().unwrap();
    until(&stage, "caught up", |code, problems| code == 0 && problems.is_empty());
    assert_eq!(show()["in_force"], true);

    // A pod that has completed and is still attached: its object is taken for another pod's of the name.
    let completed = db.object.yaml().replace("phase: Running", "phase: Succeeded");
    stage.lab.write("pod-shop-db.yaml", &completed).unwrap();
    stage.settle();
    let (code, explained) = ask(&stage, &["explain", "192.0.2.77", "shop/db", "80/tcp"]);
    let reason = explained["packets"][0]["ingress"]["reason"].as_str().unwrap().to_owned();
    assert!(code == 5 && reason.starts_with("provisional: ") && reason.contains("one that has ended"), "{explained}");
    let (code, problems) = status(&stage);
    let late = |line: &String| line.starts_with("?provisional") && line.ends_with(": shop/db");
    assert!(code == 0 && problems.iter().any(late), "{code}, {problems:?}");
}

use std::os::unix::fs::symlink;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::model::{Cluster, Kind, Name};

struct World {
    dir: TempDir,
    state: TempDir,
    cluster: Cluster,
}

impl World {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), state: TempDir::new().unwrap(), cluster: Cluster::default() }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn open(&mut self) -> Folder {
        let (folder, events) = Folder::open(self.dir.path(), self.state.path()).unwrap();
        self.cluster = Cluster::default();
        self.take(events);
        folder
    }

    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            self.cluster.apply(event);
        }
    }

    fn nodes(&self) -> Vec<&str> {
        self.cluster.nodes.keys().map(String::as_str).collect()
    }
}

fn node(name: &str) -> String {
    format!("kind: Node\nmetadata: {{name: {name}}}\n")
}

#[test]
fn a_bad_file_keeps_its_objects_and_the_others_apply() {
    let mut world = World::new();
    world.write("1.yaml", &node("a"));
    world.write("2.yaml", &node("b"));
    let mut folder = world.open();
    world.write("1.yaml", "kind: Node\nmetadata: {\n");
    world.write("2.yaml", &node("c"));
    let events = folder.scan();
    world.take(events);
    assert_eq!(world.nodes(), ["a", "c"]);
    let problems = folder.problems();
    assert!(problems.len() == 1 && problems[0].starts_with("1.yaml: line "), "{problems:?}");
    world.write("1.yaml", &node("d"));
    let events = folder.scan();
    world.take(events);
    assert_eq!(world.nodes(), ["c", "d"]);
    assert!(folder.problems().is_empty());
}

#[test]
fn what_the_api_would_refuse_is_said_by_file_and_field_and_the_rest_counts() {
    let policy = |name: &str, rule: &str| {
        format!(
            "kind: NetworkPolicy\nmetadata: {{namespace: a, name: {name}}}\nspec: {{ingress: [{rule}, {{ports: [{{port: 1}}]}}]}}\n---\n"
        )
    };
    let block = |block: &str| format!("{{from: [{{ipBlock: {{{block}}}}}]}}");
    let cases = [
        (
            "outside",
            block("cidr: 10.0.0.0/24, except: [10.1.0.0/24]"),
            "spec.ingress[0].from[0]: except 10.1.0.0/24 is not inside 10.0.0.0/24",
        ),
        (
            "family",
            block("cidr: 10.0.0.0/24, except: ['fd00::/64']"),
            "spec.ingress[0].from[0]: except fd00::/64 is not inside 10.0.0.0/24",
        ),
        ("bits", block("cidr: 10.0.0.0/33"), "spec.ingress[0].from[0]: \"10.0.0.0/33\" is no CIDR"),
        ("address", block("cidr: 10.0.0.1"), "spec.ingress[0].from[0]: \"10.0.0.1\" is no CIDR"),
        ("below", "{ports: [{port: 90, endPort: 80}]}".into(), "spec.ingress[0].ports[0]: endPort 80 is below port 90"),
        (
            "named",
            "{ports: [{port: http, endPort: 80}]}".into(),
            "spec.ingress[0].ports[0]: endPort beside a named port",
        ),
        ("alone", "{ports: [{endPort: 80}]}".into(), "spec.ingress[0].ports[0]: endPort without port"),
        ("none", "{ports: [{port: 0}]}".into(), "spec.ingress[0].ports[0]: port 0 is not from 1 to 65535"),
        (
            "beyond",
            "{ports: [{port: 1, endPort: 65536}]}".into(),
            "spec.ingress[0].ports[0]: port 65536 is not from 1 to 65535",
        ),
        (
            "protocol",
            "{ports: [{protocol: ICMP}]}".into(),
            "spec.ingress[0].ports[0]: protocol \"ICMP\" is none of TCP, UDP, SCTP",
        ),
    ];
    let mut world = World::new();
    let bad: Vec<String> = cases.iter().map(|(name, rule, _)| policy(name, rule)).collect();
    world.write("bad.yaml", &bad.concat());
    world.write("good.yaml", &policy("good", "{ports: [{port: 2}]}"));
    let said = crate::source::logged::logged(|| drop(world.open()));
    for (name, _, why) in &cases {
        let why = why.replace('"', "\\\"");
        let line = said.lines().find(|line| line.contains(&format!("a/{name}")));
        assert!(line.is_some_and(|line| line.contains("bad.yaml") && line.contains(&why)), "{name}: {line:?}");
        let policy = &world.cluster.policies[&Name::new("a", name)];
        assert_eq!((policy.refused.len(), policy.ingress.as_ref().map(|rules| rules.len())), (1, Some(2)), "{name}");
    }
    assert!(!said.contains("good"), "{said}");
    assert_eq!(world.cluster.policies.len(), cases.len() + 1);
}

#[test]
fn a_file_that_turned_bad_while_no_agent_ran_keeps_its_objects() {
    let mut world = World::new();
    world.write("1.yaml", &node("a"));
    world.write("2.yaml", &node("b"));
    drop(world.open());
    world.write("1.yaml", "]");
    fs::remove_file(world.dir.path().join("2.yaml")).unwrap();
    drop(world.open());
    assert_eq!(world.nodes(), ["a"], "the bad file's object stays, the removed file's goes");
    drop(world.open());
    assert_eq!(world.nodes(), ["a"], "and over one more restart");
}

#[test]
fn a_missing_folder_leaves_the_last_state() {
    let mut world = World::new();
    let dir = world.dir.path().join("sub");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("1.yaml"), node("a")).unwrap();
    drop(Folder::open(&dir, world.state.path()).unwrap());
    fs::remove_dir_all(&dir).unwrap();
    let (mut folder, events) = Folder::open(&dir, world.state.path()).unwrap();
    world.take(events);
    assert_eq!(world.nodes(), ["a"]);
    assert_eq!(folder.problems().len(), 1);
    fs::create_dir(&dir).unwrap();
    let events = folder.scan();
    world.take(events);
    assert!(world.nodes().is_empty(), "an empty folder says that there is nothing");
}

#[test]
fn hidden_files_other_suffixes_and_folders_are_not_read() {
    let mut world = World::new();
    world.write(".hidden.yaml", &node("a"));
    world.write("readme.txt", &node("a"));
    world.write("x.yaml~", &node("a"));
    fs::create_dir(world.dir.path().join("dir.yaml")).unwrap();
    world.write("not-utf8.json", "");
    fs::write(world.dir.path().join("z.yaml"), b"kind: Node\n\xff").unwrap();
    let folder = world.open();
    assert!(world.nodes().is_empty());
    assert_eq!(folder.problems()[0], "z.yaml: line 2: not UTF-8");
}

/// Waits for events until the cluster looks as wanted.
async fn until(world: &mut World, source: &mut FolderSource, wanted: &[&str]) {
    let reached = tokio::time::timeout(Duration::from_secs(5), async {
        while world.nodes() != wanted {
            let (events, _) = source.next().await;
            world.take(events);
        }
    });
    assert!(reached.await.is_ok(), "wanted {wanted:?}, have {:?}", world.nodes());
}

#[tokio::test]
async fn changes_are_seen_as_they_happen() {
    let mut world = World::new();
    let (mut source, events) = FolderSource::start(world.dir.path(), world.state.path()).unwrap();
    world.take(events);
    world.write("1.yaml", &node("a"));
    until(&mut world, &mut source, &["a"]).await;
    world.write(".tmp", &node("b"));
    fs::rename(world.dir.path().join(".tmp"), world.dir.path().join("1.yaml")).unwrap();
    until(&mut world, &mut source, &["b"]).await;
    fs::create_dir(world.dir.path().join("status")).unwrap();
    world.write("status/s.yaml", &node("c"));
    until(&mut world, &mut source, &["b", "c"]).await;
    world.write("status/t.yaml", &node("d"));
    until(&mut world, &mut source, &["b", "c", "d"]).await;
    fs::remove_file(world.dir.path().join("1.yaml")).unwrap();
    fs::remove_dir_all(world.dir.path().join("status")).unwrap();
    until(&mut world, &mut source, &[]).await;
}

#[tokio::test]
async fn a_mounted_config_map_is_switched_over_whole() {
    let mut world = World::new();
    let root = world.dir.path().to_owned();
    for (version, name) in [("..1", "a"), ("..2", "b")] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("n.yaml"), node(name)).unwrap();
    }
    symlink("..1", root.join("..data")).unwrap();
    symlink("..data/n.yaml", root.join("n.yaml")).unwrap();
    let (mut source, events) = FolderSource::start(&root, world.state.path()).unwrap();
    world.take(events);
    assert_eq!(world.nodes(), ["a"]);
    symlink("..2", root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    until(&mut world, &mut source, &["b"]).await;
}

#[tokio::test]
async fn a_folder_that_is_replaced_is_followed() {
    let mut world = World::new();
    let dir = world.dir.path().join("sub");
    fs::create_dir(&dir).unwrap();
    let (mut source, _) = FolderSource::start(&dir, world.state.path()).unwrap();
    fs::rename(&dir, world.dir.path().join("old")).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("1.yaml"), node("a")).unwrap();
    until(&mut world, &mut source, &["a"]).await;
    fs::write(dir.join("2.yaml"), node("b")).unwrap();
    until(&mut world, &mut source, &["a", "b"]).await;
}

#[test]
fn all_is_told_once_the_folder_was_read_or_is_known_from_before() {
    let mut world = World::new();
    let dir = world.dir.path().to_owned();
    fs::remove_dir(&dir).unwrap();
    let mut folder = world.open();
    assert_eq!(world.cluster.untold(), Kind::ALL, "nobody has seen what is in it");
    fs::create_dir(&dir).unwrap();
    world.write("1.yaml", &node("a"));
    let events = folder.scan();
    world.take(events);
    assert_eq!(world.cluster.untold(), []);
    fs::remove_dir_all(&dir).unwrap();
    world.open();
    assert_eq!((world.cluster.untold(), world.nodes()), (vec![], vec!["a"]), "what it said last is known");
    fs::create_dir(&dir).unwrap();
}

fn policy(name: &str) -> String {
    format!("kind: NetworkPolicy\nmetadata: {{namespace: shop, name: {name}}}\nspec: {{podSelector: {{}}}}\n")
}

/// A world whose folder was read whole and is missing now; its path.
fn unmounted(manifests: &[(&str, String)]) -> (World, std::path::PathBuf) {
    let mut world = World::new();
    for (name, text) in manifests {
        world.write(name, text);
    }
    drop(world.open());
    assert_eq!(world.cluster.untold(), []);
    let copy = world.state.path().join("source/folder");
    fs::remove_dir_all(world.dir.path()).unwrap();
    (world, copy)
}

#[test]
fn a_copy_that_is_damaged_is_not_lived_by_nor_by_the_next_start() {
    let (mut world, copy) = unmounted(&[("nodes.yaml", node("a")), ("policies.yaml", policy("deny"))]);
    let text = fs::read_to_string(&copy).unwrap();
    for damage in ["\u{0}", "7"] {
        let damaged = text.replace("[{\"Policy\"", &format!("[{damage}{{\"Policy\""));
        assert_ne!(damaged, text);
        fs::write(&copy, damaged).unwrap();
        for start in ["the first start", "the next"] {
            drop(world.open());
            assert_eq!(world.nodes(), ["a"], "what can be read of it is known");
            assert_eq!(world.cluster.untold(), Kind::ALL, "{start}: its policies are not known");
        }
    }
    fs::create_dir(world.dir.path()).unwrap();
    world.write("nodes.yaml", &node("a"));
    drop(world.open());
    assert_eq!(world.cluster.untold(), [], "the folder says all");
    fs::remove_dir_all(world.dir.path()).unwrap();
    drop(world.open());
    assert_eq!((world.cluster.untold(), world.nodes()), (vec![], vec!["a"]), "and it is known again");
    fs::create_dir(world.dir.path()).unwrap();
}

#[test]
fn a_copy_whose_writing_was_cut_short_is_not_lived_by() {
    let (mut world, copy) = unmounted(&[("nodes.yaml", node("a")), ("policies.yaml", policy("deny"))]);
    let text = fs::read_to_string(&copy).unwrap();
    for lines in 0..text.lines().count() {
        let length = text.lines().take(lines).map(|line| line.len() + 1).sum();
        fs::write(&copy, &text[..length]).unwrap();
        drop(world.open());
        assert_eq!(world.cluster.untold(), Kind::ALL, "after {lines} lines of {text}");
    }
    fs::write(&copy, &text).unwrap();
    drop(world.open());
    assert_eq!((world.cluster.untold(), world.cluster.policies.len()), (vec![], 1));
    fs::create_dir(world.dir.path()).unwrap();
}

#[test]
fn nothing_is_told_to_be_all_while_a_manifest_is_bad_that_was_never_good() {
    let mut world = World::new();
    world.write("nodes.yaml", &node("a"));
    world.write("policies.yaml", &(policy("deny") + "---\nkind: NetworkPolicy\nmetadata: 7\n"));
    fs::create_dir(world.dir.path().join("status")).unwrap();
    world.write("status/s.yaml", "]");
    let mut folder = world.open();
    assert_eq!((world.nodes(), world.cluster.untold()), (vec!["a"], Kind::ALL.to_vec()));
    let problems = folder.problems();
    let says =
        |text: &str| problems.iter().any(|problem| problem.starts_with("policies.yaml: ") && problem.contains(text));
    assert!(problems.len() == 3 && says("new pods are isolated"), "{problems:?}");
    drop(world.open());
    assert_eq!(world.cluster.untold(), Kind::ALL, "nor by the next start");
    world.write("policies.yaml", &policy("deny"));
    let events = folder.scan();
    world.take(events);
    assert_eq!((world.cluster.untold(), world.cluster.policies.len()), (vec![], 1));
    assert_eq!(folder.problems().len(), 1, "the status file");
    // What was good once holds, also over a restart. A new one that is bad takes nothing back, but after a restart nobody knows that it is new.
    world.write("policies.yaml", "]");
    drop(world.open());
    assert_eq!((world.cluster.untold(), world.cluster.is_old(), world.cluster.policies.len()), (vec![], false, 1));
    world.write("more.yaml", "]");
    world.write("pods.yaml", "kind: Pod\nmetadata: {namespace: shop, name: new}\n");
    let mut folder = world.open();
    assert!(world.cluster.untold().is_empty() && world.cluster.is_old(), "it may hold a policy");
    assert_eq!(world.cluster.early.len(), 1, "of which a pod may be in want");
    fs::remove_file(world.dir.path().join("more.yaml")).unwrap();
    let events = folder.scan();
    world.take(events);
    assert!(!world.cluster.is_old() && world.cluster.early.is_empty());
}

#[test]
fn a_pod_that_is_newer_than_what_a_bad_manifest_may_hold_is_known_to_be_over_any_number_of_starts() {
    let pod = |name: &str, app: &str| {
        format!("kind: Pod\nmetadata: {{namespace: shop, name: {name}, labels: {{app: {app}}}}}\n---\n")
    };
    let mut world = World::new();
    world.write("pods.yaml", &[pod("same", "web"), pod("other", "web")].concat());
    drop(world.open());
    world.write("policies.yaml", "]");
    world.write("pods.yaml", &[pod("same", "web"), pod("other", "db"), pod("new", "db")].concat());
    let early = |world: &World| world.cluster.early.iter().map(|name| name.name().to_owned()).collect::<Vec<_>>();
    for start in 1..4 {
        drop(world.open());
        assert!(world.cluster.is_old());
        assert_eq!(early(&world), ["new", "other"], "start {start}");
    }
    let mut folder = world.open();
    world.write("policies.yaml", &policy("deny"));
    let events = folder.scan();
    world.take(events);
    assert!(!world.cluster.is_old() && early(&world).is_empty());
    drop(folder);
    world.write("more.yaml", "]");
    drop(world.open());
    assert!(world.cluster.is_old() && early(&world).is_empty(), "the copy has policies as new as these");
}

#[test]
fn files_that_changed_together_are_known_together_wherever_an_agent_is_killed() {
    let pod = |app: &str| format!("kind: Pod\nmetadata: {{namespace: shop, name: p, labels: {{app: {app}}}}}\n");
    let mut world = World::new();
    let write = |world: &World, app: &str| {
        world.write("1.yaml", &pod(app));
        world.write("2.yaml", &policy(app));
    };
    write(&world, "web");
    let (mut folder, _) = Folder::open(world.dir.path(), world.state.path()).unwrap();
    let copy = world.state.path().join("source/folder");
    let before = fs::read(&copy).unwrap();
    write(&world, "db");
    folder.scan();
    drop(folder);
    let after = fs::read(&copy).unwrap();
    fs::remove_dir_all(world.dir.path()).unwrap();
    let mut seen = BTreeSet::new();
    for end in before.len()..=after.len() {
        fs::write(&copy, &after[..end]).unwrap();
        drop(world.open());
        if world.cluster.untold().is_empty() {
            let app = world.cluster.pods.values().next().unwrap().labels.get("app").map(str::to_owned);
            seen.insert((app.unwrap(), world.cluster.policies.keys().next().unwrap().name().to_owned()));
        }
    }
    assert_eq!(seen, ["db", "web"].map(|app| (app.to_owned(), app.to_owned())).into());
    fs::create_dir(world.dir.path()).unwrap();
}

#[test]
fn a_bad_manifest_of_a_damaged_copy_may_have_held_more() {
    let mut world = World::new();
    world.write("policies.yaml", &policy("old"));
    let mut folder = world.open();
    world.write("policies.yaml", &policy("newer"));
    folder.scan();
    drop(folder);
    let copy = world.state.path().join("source/folder");
    let text = fs::read_to_string(&copy).unwrap();
    fs::write(&copy, text.replace("newer", "\u{0}")).unwrap();
    world.write("policies.yaml", "]");
    for _ in 0..2 {
        drop(world.open());
        assert_eq!((world.cluster.untold(), world.cluster.policies.len()), (Kind::ALL.to_vec(), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_disk_refused_is_kept_once_it_can_be() {
    let mut world = World::new();
    let (mut source, _) = FolderSource::start(world.dir.path(), world.state.path()).unwrap();
    source.folder.copy.refuse(true);
    world.write("1.yaml", &node("a"));
    until(&mut world, &mut source, &["a"]).await;
    assert!(source.problems()[0].contains("a restart would not know the last state"), "{:?}", source.problems());
    source.folder.copy.refuse(false);
    while !source.problems().is_empty() {
        let next = tokio::time::timeout(Duration::from_secs(30), source.next()).await;
        next.expect("nothing happens any more in the folder, and the disk is not tried again");
    }
    fs::remove_dir_all(world.dir.path()).unwrap();
    drop(world.open());
    assert_eq!((world.nodes(), world.cluster.untold()), (vec!["a"], vec![]));
    fs::create_dir(world.dir.path()).unwrap();
}

use std::os::unix::fs::symlink;
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::model::{Cluster, Kind};

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
        let policy = &world.cluster.policies[&("a".to_owned(), (*name).to_owned())];
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
    assert_eq!(folder.problems(), ["z.yaml: line 2: not UTF-8"]);
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

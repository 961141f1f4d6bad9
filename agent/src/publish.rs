//! `--publish DIR`: `DIR/status/<namespace>.<pod>.yaml` for each pod of this node, since no kubelet writes `status.podIPs` here.
//!
//! Invariant: a reader sees a whole file or none (rename); a file goes only when the attachment that wrote it goes, not when an older one
//! of the same pod name does. Nodes may share the folder: files of other nodes are never touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, ErrorKind},
    net::IpAddr,
    path::{Path, PathBuf},
};

use crate::{
    attachments::record::Record,
    source::{folder::manifest, object::Object},
};

/// Writer of status files.
#[derive(Debug)]
pub struct Publisher {
    dir: PathBuf,
    node: String,
    /// The attachment, by host link, that each file speaks of.
    owners: BTreeMap<String, String>,
    /// Files that could not be written (text) or removed (`None`), to be tried again.
    pending: BTreeMap<String, Option<String>>,
}

impl Publisher {
    /// Files of `node` go to `dir/status`.
    #[must_use]
    pub fn new(dir: &Path, node: &str) -> Self {
        Self { dir: dir.join("status"), node: node.to_owned(), owners: BTreeMap::new(), pending: BTreeMap::new() }
    }

    /// Tells of a committed attachment.
    pub fn put(&mut self, record: &Record) {
        let Some(file) = file_name(record) else { return };
        self.owners.insert(file.clone(), record.host_link.clone());
        self.change(file, Some(text(record, &self.node)));
    }

    /// An attachment is gone.
    pub fn remove(&mut self, record: &Record) {
        let Some(file) = file_name(record) else { return };
        if self.owners.get(&file) == Some(&record.host_link) {
            self.owners.remove(&file);
            self.change(file, None);
        }
    }

    /// These are all of this node: writes them and removes what an earlier agent left.
    pub fn replace<'a>(&mut self, records: impl Iterator<Item = &'a Record>) {
        let mut wanted = BTreeSet::new();
        for record in records {
            wanted.extend(file_name(record));
            self.put(record);
        }
        for file in self.own_files().difference(&wanted) {
            self.change(file.clone(), None);
        }
        self.remove_unfinished();
    }

    /// Tries again what failed. Says how much still fails.
    pub fn retry(&mut self) -> usize {
        for (file, text) in std::mem::take(&mut self.pending) {
            self.change(file, text);
        }
        self.pending.len()
    }

    fn change(&mut self, file: String, text: Option<String>) {
        self.pending.remove(&file);
        let result = match &text {
            Some(text) => self.write(&file, text),
            None => match fs::remove_file(self.dir.join(&file)) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                result => result,
            },
        };
        if let Err(error) = result {
            tracing::error!(file = %self.dir.join(&file).display(), %error, "cannot publish a pod's status; tried again every minute");
            self.pending.insert(file, text);
        }
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let path = self.dir.join(file);
        // Unchanged files stay as they are: readers would take a new inode for news.
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            return Ok(());
        }
        let new = self.dir.join(self.unfinished(file));
        if let Err(error) = fs::write(&new, text) {
            if error.kind() != ErrorKind::NotFound {
                return Err(error);
            }
            fs::create_dir_all(&self.dir)?;
            fs::write(&new, text)?;
        }
        fs::rename(&new, &path)
    }

    /// What a file is called until it is whole. Names this node, so that nobody takes another's for its own; by a hash, since a file's name has
    /// 255 bytes at most and a pod's names may take most of them.
    fn unfinished(&self, file: &str) -> String {
        format!(".{file}.{}.new", mark(&self.node))
    }

    /// Removes what an agent that was killed left half written.
    fn remove_unfinished(&mut self) {
        let names = fs::read_dir(&self.dir).into_iter().flatten();
        for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let mark = mark(&self.node);
            let of_node = name.strip_suffix(".new").and_then(|name| name.rsplit_once(".yaml."));
            if name.starts_with('.') && of_node.is_some_and(|(_, of)| of == mark) {
                self.change(name, None);
            }
        }
    }

    /// Files in the folder that speak of pods on this node.
    fn own_files(&self) -> BTreeSet<String> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return BTreeSet::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.ends_with(".yaml") && self.is_own(name)).collect()
    }

    fn is_own(&self, name: &str) -> bool {
        let objects = fs::read_to_string(self.dir.join(name)).ok().and_then(|text| manifest::parse(&text).ok());
        matches!(objects.as_deref(), Some([Object::Pod(namespace, pod, object)])
            if *object.node == *self.node && name == format!("{namespace}.{pod}.yaml"))
    }
}

/// The file of a pod; `None` where the runtime told no pod, or a name that is none.
fn file_name(record: &Record) -> Option<String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 253
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
            && !name.starts_with('.')
    };
    let pod = &record.pod;
    (is_name(&pod.namespace) && is_name(&pod.name)).then(|| format!("{}.{}.yaml", pod.namespace, pod.name))
}

fn text(record: &Record, node: &str) -> String {
    // A JSON string is a YAML scalar whatever it holds.
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    let mut text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {}\n  namespace: {}\n",
        quote(&record.pod.name),
        quote(&record.pod.namespace)
    );
    if !record.pod.uid.is_empty() {
        text += &format!("  uid: {}\n", quote(&record.pod.uid));
    }
    text += &format!("spec:\n  nodeName: {}\nstatus:\n  phase: Running\n", quote(node));
    if let Some(first) = record.addresses.first() {
        text += &format!("  podIP: {}\n  podIPs:\n", quote_ip(first));
        for ip in &record.addresses {
            text += &format!("  - ip: {}\n", quote_ip(ip));
        }
    }
    text
}

fn quote_ip(ip: &IpAddr) -> String {
    format!("\"{ip}\"")
}

/// Short for a node's name.
fn mark(node: &str) -> String {
    format!("{:08x}", crc32fast::hash(node.as_bytes()))
}

#[cfg(test)]
mod tests {
    use osmia_cni::protocol::PodRef;
    use tempfile::TempDir;

    use super::*;
    use crate::attachments::record::Phase;

    fn record(id: &str, pod: &str) -> Record {
        let pod = PodRef { namespace: "ns".into(), name: pod.into(), uid: "u".into() };
        Record { pod, ..Record::example(id, Phase::Added { ifindex: 7 }) }
    }

    fn files(dir: &TempDir) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir.path().join("status"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_written_is_what_the_source_reads() {
        let dir = TempDir::new().unwrap();
        let mut publisher = Publisher::new(dir.path(), "node-a");
        let r = record("c1", "web");
        publisher.put(&r);
        let text = fs::read_to_string(dir.path().join("status/ns.web.yaml")).unwrap();
        let objects = manifest::parse(&text).unwrap();
        assert!(
            matches!(&objects[..], [Object::Pod(ns, name, pod)]
                if ns == "ns" && name == "web" && &*pod.node == "node-a" && *pod.ips == *r.addresses && pod.uid == *"u"),
            "{text}"
        );
        assert_eq!(files(&dir), ["ns.web.yaml"], "no temporary file stays");
        publisher.remove(&r);
        assert!(files(&dir).is_empty());
    }

    #[test]
    fn the_del_of_an_older_container_leaves_the_newer_ones_file() {
        let dir = TempDir::new().unwrap();
        let mut publisher = Publisher::new(dir.path(), "node-a");
        publisher.put(&record("old", "web"));
        publisher.put(&record("new", "web"));
        publisher.remove(&record("old", "web"));
        assert_eq!(files(&dir), ["ns.web.yaml"]);
        publisher.remove(&record("new", "web"));
        assert!(files(&dir).is_empty());
    }

    #[test]
    fn names_as_long_as_they_may_be_have_room_in_a_file_name() {
        let dir = TempDir::new().unwrap();
        let (node, pod) = ("n".repeat(63), "p".repeat(185));
        Publisher::new(dir.path(), &node).put(&record("c1", &pod));
        assert_eq!(files(&dir), [format!("ns.{pod}.yaml")]);
    }

    #[test]
    fn a_restart_removes_its_own_leftovers_only() {
        let dir = TempDir::new().unwrap();
        Publisher::new(dir.path(), "node-b").put(&record("c9", "other"));
        let mut first = Publisher::new(dir.path(), "node-a");
        first.put(&record("c1", "gone"));
        first.put(&record("c2", "stays"));
        fs::write(dir.path().join("status/by-hand.yaml"), "kind: Pod\nmetadata: {name: x}\nspec: {nodeName: node-a}\n")
            .unwrap();
        // An agent of each node was killed while it wrote.
        for node in ["node-a", "node-b"] {
            fs::write(dir.path().join(format!("status/.ns.late.yaml.{}.new", mark(node))), "api").unwrap();
        }
        Publisher::new(dir.path(), "node-a").replace([&record("c2", "stays")].into_iter());
        let others = format!(".ns.late.yaml.{}.new", mark("node-b"));
        assert_eq!(files(&dir), [others.as_str(), "by-hand.yaml", "ns.other.yaml", "ns.stays.yaml"]);
    }

    #[test]
    fn names_that_are_no_pod_names_are_not_published() {
        let dir = TempDir::new().unwrap();
        let mut publisher = Publisher::new(dir.path(), "node-a");
        for bad in ["", "../../etc/x", "A", ".x", "a/b", "a\nb"] {
            publisher.put(&record("c1", bad));
        }
        assert!(!dir.path().join("status").exists());
    }

    #[test]
    fn what_failed_is_tried_again() {
        let dir = TempDir::new().unwrap();
        // A file where the folder should be.
        fs::write(dir.path().join("status"), "").unwrap();
        let mut publisher = Publisher::new(dir.path(), "node-a");
        publisher.put(&record("c1", "web"));
        assert_eq!(publisher.retry(), 1);
        fs::remove_file(dir.path().join("status")).unwrap();
        assert_eq!(publisher.retry(), 0);
        assert_eq!(files(&dir), ["ns.web.yaml"]);
    }
}

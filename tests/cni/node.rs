//! A node without an agent: namespaces, a folder, and the plugin as a process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use osmia_cni::protocol::{AttachmentKey, host_link_name};
use osmia_lab::{Ended, Space, random};
use serde_json::{Value, json};

use crate::fake_agent::FakeAgent;

/// A node. Its namespaces and its folder go with it.
pub(crate) struct Node {
    pub(crate) space: Space,
    pub(crate) folder: PathBuf,
    pub(crate) plugin: PathBuf,
    _lock: File,
}

impl Node {
    pub(crate) fn new() -> Self {
        let bin = std::env::var_os("OSMIA_BIN_DIR").expect("OSMIA_BIN_DIR names the folder with osmia-cni");
        let (folder, lock) = folder();
        for name in ["bpf", "run", "netns", "pins"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let space = Space::machine(format!("osm-cni-{:04x}", random() as u16), &folder.join("bpf")).unwrap();
        Self { space, folder, plugin: PathBuf::from(bin).join("osmia-cni"), _lock: lock }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("run/cni.sock")
    }

    pub(crate) fn queue(&self) -> PathBuf {
        self.folder.join("state/queue")
    }

    /// Names of the queue's entries.
    pub(crate) fn queued(&self) -> Vec<String> {
        let entries = fs::read_dir(self.queue()).into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().into_string().unwrap());
        names.filter(|n| n.ends_with(".json")).collect()
    }

    /// An agent that does everything right.
    pub(crate) fn agent(&self) -> FakeAgent {
        FakeAgent::start(self, |_, _| None)
    }

    pub(crate) fn config(&self, version: &str) -> Value {
        json!({
            "cniVersion": version,
            "name": "osmia",
            "type": "osmia-cni",
            "socket": self.socket(),
            "state": self.folder.join("state"),
            "bpffs": self.folder.join("pins"),
        })
    }

    /// A pod's namespace, as a runtime makes it.
    pub(crate) fn pod(&self, id: &str) -> Pod<'_> {
        let path = self.folder.join("netns").join(format!("osm-{id}"));
        let space = Space::pod(format!("osm-{id}"), &self.space, &path).unwrap();
        Pod { node: self, id: id.to_owned(), ifname: "eth0".into(), path, space }
    }

    /// A call of the plugin with nothing but the command.
    pub(crate) fn call(&self, command: &str) -> Call<'_> {
        let vars = BTreeMap::from([("CNI_COMMAND".to_owned(), command.to_owned())]);
        Call { node: self, vars, stdin: self.config("1.1.0").to_string() }
    }
}

/// A folder of its own with its lock held. Those of killed runs, whose lock is free, go. Short, since a socket's path may have 107 bytes.
fn folder() -> (PathBuf, File) {
    const BASE: &str = "/tmp/osm-cni";
    fs::create_dir_all(BASE).unwrap();
    let turn = File::create(Path::new(BASE).join("lock")).unwrap();
    turn.lock().unwrap();
    for old in fs::read_dir(BASE).unwrap().flatten() {
        let lock = File::open(old.path().join("lock"));
        if lock.is_ok_and(|l| l.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(old.path());
        }
    }
    let folder = Path::new(BASE).join(format!("{:08x}", random() as u32));
    fs::create_dir(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    (folder, lock)
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A pod and the attachment that tests make in it.
pub(crate) struct Pod<'a> {
    pub(crate) node: &'a Node,
    pub(crate) id: String,
    pub(crate) ifname: String,
    pub(crate) path: PathBuf,
    pub(crate) space: Space,
}

impl<'a> Pod<'a> {
    pub(crate) fn key(&self) -> AttachmentKey {
        AttachmentKey::new(&self.id, &self.ifname).unwrap()
    }

    pub(crate) fn host_link(&self) -> String {
        host_link_name(&self.key())
    }

    /// A call about this attachment, complete.
    pub(crate) fn call(&self, command: &str) -> Call<'a> {
        let netns = self.path.display().to_string();
        self.node.call(command).env("CNI_CONTAINERID", &self.id).env("CNI_IFNAME", &self.ifname).env("CNI_NETNS", netns)
    }

    pub(crate) fn add(&self, version: &str) -> Value {
        self.call("ADD").config(self.node.config(version)).run().result()
    }
}

/// A call that is put together.
#[derive(Clone)]
pub(crate) struct Call<'a> {
    node: &'a Node,
    vars: BTreeMap<String, String>,
    stdin: String,
}

impl Call<'_> {
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.vars.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.vars.remove(name);
        self
    }

    pub(crate) fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = text.into();
        self
    }

    pub(crate) fn config(self, config: Value) -> Self {
        self.stdin(config.to_string())
    }

    /// One more key of the configuration.
    pub(crate) fn with(self, key: &str, value: Value) -> Self {
        let mut config: Value = serde_json::from_str(&self.stdin).unwrap();
        config[key] = value;
        self.config(config)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.node.plugin);
        command.env_clear().current_dir("/").envs(&self.vars);
        command
    }

    pub(crate) fn run(&self) -> Said {
        Said(self.node.space.feed(&mut self.command(), &self.stdin).unwrap())
    }
}

/// What the plugin said. Each way to read it proves that stdout holds one document or nothing (X1, R12, take-away 9).
#[derive(Debug)]
pub(crate) struct Said(pub(crate) Ended);

impl Said {
    fn document(&self) -> Value {
        let text = &self.0.stdout;
        assert!(text.ends_with('\n') && text.lines().count() == 1, "stdout is not one document: {:?}", self.0);
        serde_json::from_str(text).unwrap_or_else(|e| panic!("stdout is no JSON ({e}): {:?}", self.0))
    }

    /// Success with a document.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        assert!(self.0.status.success(), "{:?}", self.0);
        self.document()
    }

    /// Success without a word.
    #[track_caller]
    pub(crate) fn silent(&self) -> &Self {
        assert!(self.0.status.success() && self.0.stdout.is_empty(), "{:?}", self.0);
        self
    }

    /// An error document with that code; gives its text.
    #[track_caller]
    pub(crate) fn error(&self, code: u64) -> String {
        assert_eq!(self.0.status.code(), Some(1), "{:?}", self.0);
        let document = self.document();
        assert_eq!(document["code"], code, "{document}");
        let version = document["cniVersion"].as_str().unwrap();
        assert!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"].contains(&version), "{document}");
        let message = document["msg"].as_str().unwrap();
        assert!(!message.is_empty());
        format!("{message}: {}", document["details"].as_str().unwrap_or_default())
    }

    pub(crate) fn stderr(&self) -> &str {
        &self.0.stderr
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

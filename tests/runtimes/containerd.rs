//! Debian's containerd on a host, with processes and mounts of its own, and `ctr`.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use osmia_lab::Ended;

use crate::cgroups;
use crate::host::{Host, wait_for};

const IMAGE: &str = "docker.io/library/bb:1";
/// `ctr` gives up the pipes of a process that has ended, also those that it has not opened yet on a busy machine: what was printed is lost.
const EXECS: usize = 5;

/// A running containerd. Dropped, all its processes and cgroups are gone; when this process is killed, its processes go.
pub(crate) struct Containerd<'a> {
    host: &'a Host,
    child: Child,
    /// The first process inside, as the machine numbers it.
    init: u32,
    namespace: String,
}

/// A container whose `ctr run` waits for its end.
pub(crate) struct Foreground {
    ctr: Child,
}

impl Foreground {
    /// Waits until `ctr run` is done, its DEL included.
    pub(crate) fn wait(mut self) {
        self.ctr.wait().unwrap();
    }
}

impl<'a> Containerd<'a> {
    pub(crate) fn start(host: &'a Host) -> Self {
        let folder = host.folder().join("containerd");
        prepare(host);
        let log = File::create(folder.join("log")).unwrap();
        let mut command = Command::new("nsenter");
        let node = &host.node().space;
        command.arg(format!("--net={}", node.net_path().display()));
        command.arg(format!("--mount={}", node.mounts_path().unwrap().display()));
        // Killed with us, and with it all that it started.
        command.args(["setpriv", "--pdeathsig", "KILL"]);
        command.args(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-c", include_str!("containerd.sh"), "containerd.sh"]).arg(&folder);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut init = None;
        wait_for("unshare forks", Duration::from_secs(5), || {
            assert!(child.try_wait().unwrap().is_none(), "containerd did not start");
            init = child_of(child.id());
            init.is_some()
        });
        let containerd = Self { host, child, init: init.unwrap(), namespace: cgroups::containerd_namespace() };
        wait_for("containerd serves", Duration::from_secs(20), || {
            assert!(child_of(containerd.child.id()).is_some(), "containerd ended: {}", containerd.log());
            containerd.command(&["version"]).output().is_ok_and(|out| out.status.success())
        });
        let image = folder.join("image.tar");
        containerd.ctr(&["images", "import", "--snapshotter", "native", image.to_str().unwrap()]);
        containerd
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--net", "--mount", "--pid", "--"]);
        command.args(["ctr", "--namespace", &self.namespace]).args(words).stdin(Stdio::null());
        command
    }

    /// Runs `ctr` whatever comes of it.
    pub(crate) fn try_ctr(&self, words: &[&str]) -> Ended {
        let out = self.command(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { status: out.status, stdout: text(&out.stdout), stderr: text(&out.stderr) }
    }

    /// Runs `ctr`; gives its stdout.
    pub(crate) fn ctr(&self, words: &[&str]) -> String {
        let out = self.try_ctr(words);
        assert!(out.status.success(), "ctr {}: {}\n{}", words.join(" "), out.text(), self.log());
        out.stdout
    }

    /// `ctr run --rm --cni`: DEL comes when the process has ended.
    pub(crate) fn run(&self, name: &str, process: &[&str]) -> Ended {
        self.try_ctr(&run(&["--rm"], name, process))
    }

    fn runs(&self, name: &str) -> bool {
        let tasks = self.ctr(&["tasks", "list"]);
        tasks.lines().any(|line| line.starts_with(name) && line.contains("RUNNING"))
    }

    /// The same in the background.
    pub(crate) fn run_in_background(&self, name: &str, process: &[&str]) -> Foreground {
        let mut command = self.command(&run(&["--rm"], name, process));
        let log = File::create(self.host.folder().join(format!("containerd/{name}.log"))).unwrap();
        let ctr = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let foreground = Foreground { ctr };
        wait_for(&format!("{name} runs"), Duration::from_secs(10), || self.runs(name));
        foreground
    }

    /// `ctr run -d --cni`: DEL never comes.
    pub(crate) fn detach(&self, name: &str, process: &[&str]) {
        self.ctr(&run(&["--detach"], name, process));
    }

    /// Runs a command that prints something inside a container.
    pub(crate) fn exec(&self, name: &str, process: &str) -> String {
        for _ in 0..EXECS {
            let id = format!("e{:08x}", osmia_lab::random() as u32);
            let mut words = vec!["tasks", "exec", "--exec-id", &id, name];
            words.extend(process.split(' '));
            let out = self.ctr(&words);
            if !out.is_empty() {
                return out;
            }
        }
        panic!("{process} in {name} printed nothing, {EXECS} times");
    }

    /// Kills the container's process.
    pub(crate) fn kill(&self, name: &str) {
        self.ctr(&["tasks", "kill", "--signal", "KILL", name]);
    }

    /// What containerd wrote.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.host.folder().join("containerd/log")).unwrap_or_default()
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        // Both fail only where it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        cgroups::remove(&self.namespace);
        if thread::panicking() {
            eprintln!("log of containerd:\n{}", self.log());
        }
    }
}

fn run<'w>(how: &[&'w str], name: &'w str, process: &[&'w str]) -> Vec<&'w str> {
    [&["run"], how, &["--cni", "--snapshotter", "native", IMAGE, name], process].concat()
}

fn child_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// `/etc`, `/opt` and the image.
fn prepare(host: &Host) {
    let folder: PathBuf = host.folder().join("containerd");
    let etc = folder.join("etc");
    for inner in ["etc/cni", "etc/containerd", "opt/cni"] {
        fs::create_dir_all(folder.join(inner)).unwrap();
    }
    for name in ["passwd", "group", "nsswitch.conf"] {
        fs::copy(PathBuf::from("/etc").join(name), etc.join(name)).unwrap();
    }
    let config = "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n";
    fs::write(etc.join("containerd/config.toml"), config).unwrap();
    copy(host.conflists(), etc.join("cni/net.d"));
    copy(host.plugins(), folder.join("opt/cni/bin"));
    let out =
        Command::new("sh").args(["-c", include_str!("image.sh"), "image.sh", "/bin/busybox"]).arg(&folder).output();
    let out = out.unwrap();
    assert!(out.status.success(), "making the image: {}", String::from_utf8_lossy(&out.stderr));
}

fn copy(from: PathBuf, to: PathBuf) {
    fs::create_dir_all(&to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

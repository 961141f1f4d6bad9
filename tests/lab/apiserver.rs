//! A real kube-apiserver with its etcd, in a network namespace of their own: for tests of what watches it.
//!
//! Both come from the folder `KUBEBUILDER_ASSETS`, or from `target/tools`, where set-up builds them.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::agent::Starter;
use crate::folder::Folder;
use crate::space::Space;

mod authority;
mod proxy;
mod store;

pub use authority::Identity;
use authority::{Authority, write};
pub use proxy::{Proxy, Traffic};
pub use store::Store;

/// How long one of them may take to serve, on a busy machine.
const START: Duration = Duration::from_secs(60);
/// Nothing else is in their namespace, so the ports are free.
const ETCD: &str = "http://127.0.0.1:2379";
/// Where the apiserver is.
pub const SERVER: &str = "https://127.0.0.1:6443";
/// A user of `system:masters`.
const ADMIN: &str = "osmia-lab-admin";

/// Both of them. Dropped, they are killed and their folder goes; should this process be killed, the kernel ends them.
pub struct Apiserver {
    /// Their namespace.
    pub space: Space,
    authority: Authority,
    flags: Vec<String>,
    starter: Starter,
    etcd: Mutex<Option<Child>>,
    server: Mutex<Option<Child>>,
    folder: Folder,
}

impl Apiserver {
    /// Starts both in a namespace of their own; `flags` are more for the apiserver.
    ///
    /// # Errors
    /// They are not built, or do not serve after a minute.
    pub fn start(flags: &[&str]) -> Result<Self> {
        Self::inside(Space::network(format!("osm-apiserver-{:04x}", crate::random() as u16))?, flags)
    }

    /// Starts both in `space`, on its loopback.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn inside(space: Space, flags: &[&str]) -> Result<Self> {
        let folder = Folder::create()?;
        let at = folder.path();
        let authority = Authority::new()?;
        let served = authority.server()?;
        write(at, "ca.crt", &authority.certificate())?;
        write(at, "server.crt", &served.certificate)?;
        write(at, "server.key", &served.key)?;
        let accounts = KeyPair::generate()?;
        write(at, "accounts.key", &accounts.serialize_pem())?;
        write(at, "accounts.pub", &accounts.public_key_pem())?;
        write(at, "tokens", &format!("{ADMIN},admin,1,\"system:masters\"\n"))?;
        let starter = Starter::inside(space.try_clone()?)?;
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (etcd, server) = (Mutex::default(), Mutex::default());
        let both = Self { space, authority, flags, starter, etcd, server, folder };
        both.start_etcd()?;
        both.start_server()?;
        Ok(both)
    }

    /// Starts an apiserver that was killed.
    ///
    /// # Errors
    /// It does not serve after a minute.
    pub fn start_server(&self) -> Result<()> {
        let file = |name: &str| self.file(name).display().to_string();
        let mut command = Command::new(program("kube-apiserver")?);
        command.args(["--bind-address=127.0.0.1", "--secure-port=6443", "--advertise-address=192.0.2.1"]);
        command.args(["--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16"]);
        command.arg(format!("--etcd-servers={ETCD}"));
        command.arg(format!("--tls-cert-file={}", file("server.crt")));
        command.arg(format!("--tls-private-key-file={}", file("server.key")));
        command.arg(format!("--client-ca-file={}", file("ca.crt")));
        command.arg(format!("--service-account-key-file={}", file("accounts.pub")));
        command.arg(format!("--service-account-signing-key-file={}", file("accounts.key")));
        command.arg("--service-account-issuer=https://kubernetes.default.svc");
        command.arg(format!("--token-auth-file={}", file("tokens")));
        // Without a controller manager nobody makes the default account that each pod would need.
        command.args(["--authorization-mode=Node,RBAC", "--disable-admission-plugins=ServiceAccount"]);
        command.args(&self.flags);
        *lock(&self.server) = Some(self.spawn(command, "apiserver")?);
        self.wait_for("apiserver", &self.server, || {
            let ready = self.curl("GET", "/readyz", None).is_ok();
            // The namespaces that it makes by itself come a little later.
            ready && self.get("/api/v1/namespaces/default").is_ok()
        })
    }

    /// Kills the apiserver.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_server(&self) -> Result<()> {
        kill(&self.server)
    }

    /// Copies what etcd holds, which is stopped for it.
    ///
    /// # Errors
    /// It does not come back.
    pub fn back_up(&self) -> Result<()> {
        kill(&self.etcd)?;
        copy(&self.file("etcd"), &self.file("etcd.old"))?;
        self.start_etcd()
    }

    /// Kills both and starts them with what [`Self::back_up`] copied.
    ///
    /// # Errors
    /// They do not come back.
    pub fn restore(&self) -> Result<()> {
        kill(&self.server)?;
        kill(&self.etcd)?;
        fs::remove_dir_all(self.file("etcd")).context("remove the state of etcd")?;
        copy(&self.file("etcd.old"), &self.file("etcd"))?;
        self.start_etcd()?;
        self.start_server()
    }

    /// Has etcd forget how it came to its state.
    ///
    /// # Errors
    /// It refused.
    pub fn compact(&self) -> Result<()> {
        let ask = |path: &str, body: Value| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--fail", "--show-error", "--data", &body.to_string()]);
            self.space.output(curl.arg(format!("{ETCD}{path}")))
        };
        let status: Value = serde_json::from_str(&ask("/v3/maintenance/status", json!({}))?)?;
        let revision = status.pointer("/header/revision").context("etcd has no revision")?;
        ask("/v3/kv/compaction", json!({"revision": revision, "physical": true})).map(drop)
    }

    /// A way past the apiserver into its etcd.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn store(&self) -> Result<Store> {
        Store::new(self.space.try_clone()?)
    }

    /// The object at `path`.
    ///
    /// # Errors
    /// The apiserver's refusal.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, None)
    }

    /// Makes an object in the collection at `path`; gives it.
    ///
    /// # Errors
    /// The apiserver's refusal.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.request("POST", path, Some(object))
    }

    /// Makes many objects in the collection at `path`.
    ///
    /// # Errors
    /// A refusal of the apiserver.
    pub fn create_all(&self, path: &str, objects: &[Value]) -> Result<()> {
        let quoted = |text: &str| Value::from(text).to_string();
        let one = |object: &Value| {
            let settings = [
                ("url", format!("{SERVER}{path}")),
                ("data", object.to_string()),
                ("header", "Content-Type: application/json".to_owned()),
                ("header", format!("Authorization: Bearer {ADMIN}")),
                ("cacert", self.file("ca.crt").display().to_string()),
                ("output", "/dev/null".to_owned()),
            ];
            let lines = settings.map(|(name, value)| format!("{name} = {}\n", quoted(&value)));
            format!("{}fail\nsilent\nshow-error\n", lines.concat())
        };
        let config = objects.iter().map(one).collect::<Vec<_>>().join("next\n");
        let out = self.space.feed(Command::new("curl").args(["--config", "-"]), &config)?;
        if out.status.success() { Ok(()) } else { bail!("POST {path}: {}", out.text()) }
    }

    /// Merges into the object at `path`.
    ///
    /// # Errors
    /// The apiserver's refusal.
    pub fn patch(&self, path: &str, change: &Value) -> Result<Value> {
        self.request("PATCH", path, Some(change))
    }

    /// Deletes the object, or the whole collection, at `path`, at once.
    ///
    /// # Errors
    /// The apiserver's refusal.
    pub fn delete(&self, path: &str) -> Result<Value> {
        self.request("DELETE", path, Some(&json!({"gracePeriodSeconds": 0})))
    }

    /// Writes a kubeconfig for `server` with this `user`; gives its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn kubeconfig(&self, name: &str, server: &str, user: &Value) -> Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
            "users": [{"name": "lab", "user": user}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "current-context": "lab",
        });
        write(self.folder.path(), name, &config.to_string())
    }

    /// A kubeconfig's user who may do everything.
    #[must_use]
    pub fn admin(&self) -> Value {
        json!({"token": ADMIN})
    }

    /// A certificate of a user of a group.
    ///
    /// # Errors
    /// No randomness.
    pub fn user(&self, name: &str, group: &str) -> Result<Identity> {
        self.authority.user(name, group)
    }

    /// A file in the folder that goes with them.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let text = self.curl(method, path, body).with_context(|| format!("{method} {path}"))?;
        serde_json::from_str(&text).with_context(|| format!("{method} {path} answers {text}"))
    }

    fn curl(&self, method: &str, path: &str, body: Option<&Value>) -> Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "--max-time", "20", "--request", method]);
        curl.arg("--cacert").arg(self.file("ca.crt"));
        curl.args(["--header", &format!("Authorization: Bearer {ADMIN}"), "--header"]);
        let merges = method == "PATCH";
        curl.arg(format!("Content-Type: application/{}", if merges { "merge-patch+json" } else { "json" }));
        if let Some(body) = body {
            curl.args(["--data", &body.to_string()]);
        }
        self.space.output(curl.arg(format!("{SERVER}{path}")))
    }

    fn start_etcd(&self) -> Result<()> {
        let mut command = Command::new(program("etcd")?);
        command.arg("--data-dir").arg(self.file("etcd")).arg("--unsafe-no-fsync");
        command.args(["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD]);
        command.args(["--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "warn"]);
        *lock(&self.etcd) = Some(self.spawn(command, "etcd")?);
        self.wait_for("etcd", &self.etcd, || {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--fail", "--max-time", "2"]);
            self.space.output(curl.arg(format!("{ETCD}/health"))).is_ok()
        })
    }

    fn spawn(&self, mut command: Command, name: &str) -> Result<Child> {
        let log = File::options().create(true).append(true).open(self.log(name)).context("open a log")?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(self.folder.path());
        self.starter.spawn(command)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}.log"))
    }

    fn wait_for(&self, name: &str, child: &Mutex<Option<Child>>, mut serves: impl FnMut() -> bool) -> Result<()> {
        let since = Instant::now();
        loop {
            if let Some(status) = lock(child).as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("{name} ended ({status}) before it served: {}", last_words(&self.log(name)));
            }
            if serves() {
                return Ok(());
            }
            if since.elapsed() > START {
                bail!("{name} does not serve after {START:?}: {}", last_words(&self.log(name)));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Apiserver {
    fn drop(&mut self) {
        for child in [&self.server, &self.etcd] {
            // It does not run where a test has killed it.
            let _ = kill(child);
        }
    }
}

fn lock(child: &Mutex<Option<Child>>) -> MutexGuard<'_, Option<Child>> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kill(child: &Mutex<Option<Child>>) -> Result<()> {
    let mut child = lock(child).take().context("it does not run")?;
    child.kill().context("kill it")?;
    child.wait().context("wait for its end").map(drop)
}

/// Whether set-up has built both, or `KUBEBUILDER_ASSETS` has them.
#[must_use]
pub fn is_built() -> bool {
    ["etcd", "kube-apiserver"].into_iter().all(|name| program(name).is_ok_and(|path| path.is_file()))
}

fn program(name: &str) -> Result<PathBuf> {
    if let Some(assets) = env::var_os("KUBEBUILDER_ASSETS") {
        let path = Path::new(&assets).join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    let target =
        env::var_os("OSMIA_TARGET_DIR").context("OSMIA_TARGET_DIR names the folder with tools/kube-apiserver")?;
    Ok(Path::new(&target).join("tools").join(name))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().context("start cp")?;
    if status.success() { Ok(()) } else { bail!("copy {}: {status}", from.display()) }
}

fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(5)..).unwrap_or_default().join(" | ")
}

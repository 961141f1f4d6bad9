//! What `osmia` says of policies on the server's node, held against what the receiver says.

use anyhow::{Context, Result, bail, ensure};
use osmia_lab::{Lab, Node, Pod, Proto, Server};
use serde_json::Value;

use super::cast::{Cast, HERE, SHOP};
use super::trial::{Trial, What};
use crate::maps::answer;
use crate::report::Report;
use crate::rows::{self, Told};

const DENY: &str = "deny";
const WEB: &str = "web";
/// A port that no row before has asked for.
const PORT: u16 = 7000;
/// Exit codes of `osmia` (docs/cli.md).
const UNKNOWN: i32 = 4;
const DENIED: i32 = 5;

/// Fills the rows; gives the answers as people read them. The policies stay in force.
pub(super) fn rows(lab: &Lab, cast: &Cast, report: &mut Report) -> String {
    let scene = match Scene::set(lab, cast) {
        Ok(scene) => scene,
        Err(err) => {
            for told in Told::ALL {
                report.put(rows::told(lab.options().encap, told), Err(format!("{err:#}")));
            }
            return String::new();
        }
    };
    let mut put = |told, outcome: Result<()>| {
        let outcome = outcome.map(|()| String::new()).map_err(|err| format!("{err:#}"));
        report.put(rows::told(lab.options().encap, told), outcome);
    };
    // What was dropped is asked before and after the packets.
    let drop = scene.drop();
    let allowed = scene.allowed();
    let denied = scene.denied();
    let text = scene.text();
    let shown = scene.shown();
    put(Told::Drop, drop);
    // The twin of what is said while the policy is there: what is said when it is gone.
    let twin = scene.gone().map_err(|err| format!("{err:#}"));
    let with_twin = |outcome: Result<()>| outcome.and(twin.clone().map_err(anyhow::Error::msg));
    put(Told::Allowed, with_twin(allowed));
    put(Told::Denied, denied);
    put(Told::Show, with_twin(shown));
    text
}

struct Scene<'a> {
    lab: &'a Lab,
    cast: &'a Cast,
    node: &'a Node,
    server: Server,
}

impl<'a> Scene<'a> {
    fn set(lab: &'a Lab, cast: &'a Cast) -> Result<Self> {
        let node = lab.node(HERE)?;
        let server = Server::start(&cast.db.space, Proto::Tcp, PORT)?;
        lab.enforce(SHOP, DENY, "{podSelector: {}, policyTypes: [Ingress]}")?;
        let scene = Self { lab, cast, node, server };
        scene.allow_web()?;
        Ok(scene)
    }

    fn allow_web(&self) -> Result<()> {
        let port = format!("ports: [{{port: {PORT}}}]");
        let rule = format!("{{from: [{{podSelector: {{matchLabels: {{app: web}}}}}}], {port}}}");
        self.lab.enforce(SHOP, WEB, &format!("{{podSelector: {{matchLabels: {{app: db}}}}, ingress: [{rule}]}}"))
    }

    /// What the receiver says.
    fn receives(&self, from: &Pod, arrives: bool) -> Result<()> {
        let trial = Trial { from, to: &self.cast.db, what: What::To(&self.server) };
        [false, true].into_iter().try_for_each(|v6| trial.judge(v6, arrives)).map_err(anyhow::Error::msg)
    }

    /// A document of `osmia`, which ends with this exit code.
    fn json(&self, arguments: &[&str], code: i32) -> Result<Value> {
        let line = arguments.join(" ");
        let ended = self.node.osmia(&[arguments, &["--json"]].concat())?;
        ensure!(ended.status.code() == Some(code), "osmia {line}: {}, not {code}: {}", ended.status, ended.text());
        serde_json::from_str(&ended.stdout).with_context(|| format!("osmia {line}: {}", ended.text()))
    }

    /// What is said of the ingress of a packet to the server, for each family.
    fn explain(&self, from: &Pod, code: i32) -> Result<Vec<Value>> {
        let [from, to] = [from, &self.cast.db].map(|pod| format!("{SHOP}/{}", pod.name));
        let document = self.json(&["explain", &from, &to, &format!("{PORT}/tcp")], code)?;
        let packets = document.get("packets").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        ensure!(packets.len() == 2, "a packet of each family: {document}");
        packets.iter().map(|packet| packet.get("ingress").cloned().context("no ingress")).collect()
    }

    /// Object and rule are named, and the packet arrives.
    fn allowed(&self) -> Result<()> {
        self.receives(&self.cast.near.web, true)?;
        for ingress in self.explain(&self.cast.near.web, 0)? {
            names(&ingress, "/reason", &format!("{SHOP}/{WEB} ingress[0]"))?;
        }
        Ok(())
    }

    /// What isolates and what was nearest are named, and the packet stays away.
    fn denied(&self) -> Result<()> {
        self.receives(&self.cast.near.other, false)?;
        for ingress in self.explain(&self.cast.near.other, DENIED)? {
            for policy in [DENY, WEB] {
                names(&ingress, "/policies", &format!("\"{SHOP}/{policy}\""))?;
            }
            names(&ingress, "/nearest/rule", &format!("{SHOP}/{WEB} ingress[0]"))?;
            names(&ingress, "/nearest/fails_on", "[\"peer\"]")?;
        }
        Ok(())
    }

    /// Flows that the policy kept out of the server's port, by both families of one who was.
    fn dropped(&self) -> Result<usize> {
        let policy = format!("{SHOP}/{DENY}");
        let document = self.json(&["drop", "--policy", &policy, "--limit", "4096"], 0)?;
        let rows = document.get("rows").and_then(Value::as_array).context("no rows")?;
        let other = &self.cast.far.other;
        let other = [other.address(false)?, other.address(true)?].map(|address| Value::from(address.to_string()));
        let of = |row: &&Value| {
            row.get("dport") == Some(&PORT.into()) && row.get("src").is_some_and(|src| other.contains(src))
        };
        Ok(rows.iter().filter(of).count())
    }

    /// The policy is named with what it dropped; before it had dropped anything it is not.
    fn drop(&self) -> Result<()> {
        let before = self.dropped()?;
        ensure!(before == 0, "its twin: {before} flows are listed before anything was sent");
        self.receives(&self.cast.far.other, false)?;
        let after = self.dropped()?;
        ensure!(after >= 2, "of each family a flow was dropped, and {after} are listed");
        Ok(())
    }

    /// It is said to be in force, and by the receiver it is.
    fn shown(&self) -> Result<()> {
        let policy = format!("{SHOP}/{WEB}");
        let document = self.json(&["policy", "show", &policy], 0)?;
        names(&document, "/in_force", "true")?;
        names(&document, "/rules/0/packets", "")?;
        self.receives(&self.cast.far.web, true)?;
        self.receives(&self.cast.far.other, false)
    }

    /// Without the policy: the same packet is denied, said and done; the policy is not known. Then it is there again.
    fn gone(&self) -> Result<()> {
        self.lab.lift(SHOP, WEB)?;
        let said = self.explain(&self.cast.near.web, DENIED).map(|_| ());
        let policy = format!("{SHOP}/{WEB}");
        let shown = self.json(&["policy", "show", &policy], UNKNOWN).map(|_| ());
        let received = self.receives(&self.cast.near.web, false);
        self.allow_web()?;
        said.and(shown).and(received).context("its twin, when the policy is gone")
    }

    /// The answers as people read them, of IPv4.
    fn text(&self) -> String {
        let Cast { db, near, .. } = self.cast;
        let Ok(to) = db.address(false) else { return String::new() };
        let explain = |from: &Pod| format!("explain {SHOP}/{} {to} {PORT}/tcp", from.name);
        let lines = [
            explain(&near.web),
            explain(&near.other),
            format!("drop --policy {SHOP}/{DENY} --limit 4"),
            format!("policy show {SHOP}/{WEB}"),
        ];
        let answer = |line: String| {
            let arguments: Vec<&str> = line.split(' ').collect();
            // Who cannot be asked fails rows.
            Some(answer(self.node, &arguments, &self.node.osmia(&arguments).ok()?))
        };
        lines.into_iter().filter_map(answer).collect()
    }
}

/// That a member of a document is there and has a text in it.
fn names(document: &Value, pointer: &str, text: &str) -> Result<()> {
    match document.pointer(pointer) {
        Some(value) if value.to_string().contains(text) => Ok(()),
        _ => bail!("{pointer} does not name {text}: {document}"),
    }
}

//! Calls plugins as containerd and libcni do, and on request as no one should.
//!
//! What is sent: `cni.md` of the project's facts in short: environment, plugin object with name, version, previous result and the
//! wanted part of `runtimeConfig` on stdin, arguments in an order that changes; ADD forwards through the chain, DEL backwards; the
//! result is kept only after the whole chain succeeded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::folder::random;
use crate::plugin_process::{self, Ran};
use crate::space::Space;

/// No runtime waits longer than this for one plugin in our tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A network as its conflist tells, and where it is used.
#[derive(Debug)]
pub struct CniRunner {
    /// Where the runtime runs: its network and mount namespace.
    pub space: Space,
    /// `CNI_PATH`.
    pub path: Vec<PathBuf>,
    /// Network name.
    pub network: String,
    /// Version the runtime speaks.
    pub version: String,
    /// The plugin objects of the conflist, in its order.
    pub plugins: Vec<Value>,
    /// Program and arguments that start the plugin, such as a tracer; empty where the runtime does.
    pub through: Vec<String>,
    cache: Mutex<BTreeMap<(String, String), Value>>,
}

/// One attachment as the runtime names it.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`; `None` sends it empty.
    pub netns: Option<PathBuf>,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`, sent in a random order.
    pub args: Vec<(String, String)>,
    /// What the runtime has for `runtimeConfig`; a plugin gets what its `capabilities` declare.
    pub capabilities: Map<String, Value>,
}

/// How a call departs from what the specification asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Misbehave {
    /// SIGKILL to the plugin this long after its start.
    pub kill_after: Option<Duration>,
    /// No `prevResult`, though there is one.
    pub drop_prev_result: bool,
    /// `CNI_NETNS` empty.
    pub empty_netns: bool,
    /// `runtimeConfig` with keys as containerd writes them (`HostPort`).
    pub capitalised_keys: bool,
}

/// Why a call failed, as the runtime sees it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{plugin} {verb} failed: {message}{}", code.map(|c| format!(" (code {c})")).unwrap_or_default())]
pub struct CniError {
    /// Type of the plugin.
    pub plugin: String,
    /// Verb.
    pub verb: String,
    /// Error code of the plugin's JSON; `None` where it wrote none.
    pub code: Option<u64>,
    /// Message and details, or what there was instead.
    pub message: String,
}

impl CniRunner {
    /// A runtime of version 1.1.0.
    #[must_use]
    pub fn new(space: Space, path: Vec<PathBuf>, network: impl Into<String>, plugins: Vec<Value>) -> Self {
        Self {
            space,
            path,
            network: network.into(),
            version: "1.1.0".into(),
            plugins,
            through: Vec::new(),
            cache: Mutex::default(),
        }
    }

    /// ADD through the whole chain; gives the last result and keeps it.
    ///
    /// # Errors
    /// A [`CniError`] of the plugin that failed, or a plugin that could not be run.
    pub fn add(&self, attachment: &Attachment, misbehave: Misbehave) -> Result<Value> {
        let mut previous = None;
        for plugin in &self.plugins {
            let out = self.run("ADD", plugin, attachment, previous.as_ref(), misbehave)?;
            previous = Some(result(plugin, "ADD", &out)?);
        }
        let last = previous.context("the network has no plugins")?;
        self.cache().insert(key(attachment), last.clone());
        Ok(last)
    }

    /// CHECK with the kept result.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn check(&self, attachment: &Attachment, misbehave: Misbehave) -> Result<()> {
        for plugin in &self.plugins {
            silent(
                plugin,
                "CHECK",
                &self.run("CHECK", plugin, attachment, self.kept(attachment).as_ref(), misbehave)?,
            )?;
        }
        Ok(())
    }

    /// DEL, once. The kept result goes when the whole chain succeeded.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn del(&self, attachment: &Attachment, misbehave: Misbehave) -> Result<()> {
        for plugin in self.plugins.iter().rev() {
            silent(plugin, "DEL", &self.run("DEL", plugin, attachment, self.kept(attachment).as_ref(), misbehave)?)?;
        }
        self.cache().remove(&key(attachment));
        Ok(())
    }

    /// The three DELs of a pod that containerd stops and removes: with namespace and result, then twice with neither.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn del_like_containerd(&self, attachment: &Attachment) -> Result<()> {
        self.del(attachment, Misbehave::default())?;
        for _ in 0..2 {
            self.del(attachment, Misbehave { empty_netns: true, ..Misbehave::default() })?;
        }
        Ok(())
    }

    /// STATUS of each plugin.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn status(&self) -> Result<()> {
        for plugin in &self.plugins {
            silent(plugin, "STATUS", &self.call("STATUS", plugin, self.configuration(plugin), &[], None)?)?;
        }
        Ok(())
    }

    /// GC: what is not `valid` goes. `None` leaves the key away, as a caller without a list does.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn gc(&self, valid: Option<&[Attachment]>) -> Result<()> {
        let valid = valid.map(|valid| {
            let one = |a: &Attachment| json!({"containerID": a.container_id, "ifname": a.ifname});
            Value::Array(valid.iter().map(one).collect())
        });
        for plugin in &self.plugins {
            let mut config = self.configuration(plugin);
            if let Some(valid) = &valid {
                config.insert("cni.dev/valid-attachments".into(), valid.clone());
                config.insert("cni.dev/attachments".into(), valid.clone());
            }
            silent(plugin, "GC", &self.call("GC", plugin, config, &[], None)?)?;
        }
        Ok(())
    }

    /// The kept result of an attachment.
    #[must_use]
    pub fn kept(&self, attachment: &Attachment) -> Option<Value> {
        self.cache().get(&key(attachment)).cloned()
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Value>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of one plugin about an attachment, judged by nobody.
    ///
    /// # Errors
    /// The plugin could not be run.
    pub fn run(
        &self,
        verb: &str,
        plugin: &Value,
        attachment: &Attachment,
        previous: Option<&Value>,
        misbehave: Misbehave,
    ) -> Result<Ran> {
        let mut config = self.configuration(plugin);
        if let Some(previous) = previous.filter(|_| !misbehave.drop_prev_result) {
            config.insert("prevResult".into(), previous.clone());
        }
        let wanted = runtime_config(plugin, &attachment.capabilities, misbehave.capitalised_keys);
        if !wanted.is_empty() {
            config.insert("runtimeConfig".into(), Value::Object(wanted));
        }
        let netns = attachment.netns.as_ref().filter(|_| !misbehave.empty_netns);
        let environment = [
            ("CNI_CONTAINERID", attachment.container_id.clone()),
            ("CNI_NETNS", netns.map(|p| p.display().to_string()).unwrap_or_default()),
            ("CNI_IFNAME", attachment.ifname.clone()),
            ("CNI_ARGS", shuffled(&attachment.args)),
        ];
        self.call(verb, plugin, config, &environment, misbehave.kill_after)
    }

    /// The plugin object as libcni hands it on: with name and version, `capabilities` left in.
    #[must_use]
    pub fn configuration(&self, plugin: &Value) -> Map<String, Value> {
        let mut config = plugin.as_object().cloned().unwrap_or_default();
        config.insert("name".into(), self.network.clone().into());
        config.insert("cniVersion".into(), self.version.clone().into());
        config
    }

    /// Runs a plugin with this stdin and, beside `CNI_COMMAND` and `CNI_PATH`, this environment.
    ///
    /// # Errors
    /// It is in no folder of the path, could not be started, or did not end within a minute.
    pub fn call(
        &self,
        verb: &str,
        plugin: &Value,
        config: Map<String, Value>,
        environment: &[(&str, String)],
        kill_after: Option<Duration>,
    ) -> Result<Ran> {
        let name = type_of(plugin);
        let binary = self.path.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        let binary = binary.with_context(|| format!("plugin {name} is in none of {:?}", self.path))?;
        let path: Vec<_> = self.path.iter().map(|p| p.display().to_string()).collect();
        let mut command = match self.through.split_first() {
            None => Command::new(binary),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(binary);
                command
            }
        };
        command.env_clear().current_dir("/");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("CNI_COMMAND", verb).env("CNI_PATH", path.join(":"));
        command.envs(environment.iter().map(|(k, v)| (k, v)));
        let start = Instant::now();
        plugin_process::run(&self.space, command, &Value::Object(config).to_string(), kill_after, PATIENCE)
            .with_context(|| format!("run {name} {verb} ({:?} so far)", start.elapsed()))
    }
}

fn type_of(plugin: &Value) -> &str {
    plugin.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn key(attachment: &Attachment) -> (String, String) {
    (attachment.container_id.clone(), attachment.ifname.clone())
}

fn runtime_config(plugin: &Value, has: &Map<String, Value>, capitalised: bool) -> Map<String, Value> {
    let declared = |name: &str| plugin.pointer(&format!("/capabilities/{name}")).and_then(Value::as_bool) == Some(true);
    has.iter()
        .filter(|(name, _)| declared(name))
        .map(|(name, value)| (name.clone(), if capitalised { capitals(value) } else { value.clone() }))
        .collect()
}

/// The inner keys as Go writes a struct without tags.
fn capitals(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(capitals).collect()),
        Value::Object(fields) => {
            let capital = |name: &str| {
                let mut letters = name.chars();
                letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
            };
            Value::Object(fields.iter().map(|(name, value)| (capital(name), capitals(value))).collect())
        }
        other => other.clone(),
    }
}

fn shuffled(args: &[(String, String)]) -> String {
    let mut pairs: Vec<_> = args.iter().map(|(name, value)| (random(), format!("{name}={value}"))).collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.into_iter().map(|(_, pair)| pair).collect();
    pairs.join(";")
}

/// The JSON of a plugin that must give a result.
fn result(plugin: &Value, verb: &str, ran: &Ran) -> Result<Value> {
    succeeded(plugin, verb, ran)?;
    serde_json::from_str(&ran.stdout)
        .with_context(|| format!("{} {verb} wrote no JSON result: {:?}", type_of(plugin), ran.stdout))
}

/// That a plugin succeeded without a word.
fn silent(plugin: &Value, verb: &str, ran: &Ran) -> Result<()> {
    succeeded(plugin, verb, ran)?;
    if !ran.stdout.is_empty() {
        bail!("{} {verb} wrote to stdout where nothing may stand: {:?}", type_of(plugin), ran.stdout);
    }
    Ok(())
}

fn succeeded(plugin: &Value, verb: &str, ran: &Ran) -> Result<()> {
    if ran.status.success() {
        return Ok(());
    }
    let said: Option<Value> = serde_json::from_str(&ran.stdout).ok();
    let text = |name: &str| {
        said.as_ref().and_then(|v| v.get(name)).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned)
    };
    let message = match (text("msg"), text("details")) {
        (Some(message), Some(details)) => format!("{message}: {details}"),
        (Some(message), None) => message,
        _ => format!("{}: {} {}", ran.status, ran.stderr.trim(), ran.stdout.trim()),
    };
    let code = said.as_ref().and_then(|v| v.get("code")).and_then(Value::as_u64);
    Err(CniError { plugin: type_of(plugin).to_owned(), verb: verb.to_owned(), code, message }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_gets_the_capabilities_it_declares_in_either_spelling() {
        let plugin = json!({"type": "x", "capabilities": {"portMappings": true, "bandwidth": false}});
        let has = json!({"portMappings": [{"hostPort": 80}], "bandwidth": {"ingressRate": 1}, "mac": "x"});
        let has = has.as_object().unwrap();
        assert_eq!(Value::Object(runtime_config(&plugin, has, false)), json!({"portMappings": [{"hostPort": 80}]}));
        assert_eq!(Value::Object(runtime_config(&plugin, has, true)), json!({"portMappings": [{"HostPort": 80}]}));
    }

    #[test]
    fn the_order_of_arguments_changes() {
        let args: Vec<_> = (0..8).map(|i| (format!("K{i}"), i.to_string())).collect();
        let orders: std::collections::HashSet<_> = (0..16).map(|_| shuffled(&args)).collect();
        assert!(orders.len() > 1);
        assert!(orders.iter().all(|o| o.split(';').count() == 8 && o.contains("K3=3")));
    }
}

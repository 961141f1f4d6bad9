//! The plugin configuration on stdin.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::Version;
use super::error::code;
use super::fields::Fields;
use crate::protocol::Failure;
use crate::protocol::key::valid_identifier;

/// Keys that mean something to us or to the runtime. Others only cause a warning: libcni leaves `capabilities` in, and the
/// prefix `cni.dev/` is the runtime's.
const KNOWN: [&str; 17] = [
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "capabilities",
    "runtimeConfig",
    "args",
    "prevResult",
    "ipMasq",
    "ipam",
    "dns",
    "disableCheck",
    "socket",
    "state",
    "bpffs",
    "bootId",
    "timeout",
];

/// The configuration as a JSON object of a supported version.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its version.
    pub version: Version,
    fields: Map<String, Value>,
}

/// What every command but VERSION reads from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Network name.
    pub name: String,
    /// Socket of the agent.
    pub socket: PathBuf,
    /// State folder of the agent, with the queue.
    pub state: PathBuf,
    /// Root of the pins.
    pub bpffs: PathBuf,
    /// File with the kernel's boot id.
    pub boot_id: PathBuf,
    /// Longest time a call may take, if shorter than the command's own limit.
    pub timeout: Option<Duration>,
    /// What an operator should know, for stderr.
    pub warnings: Vec<String>,
}

impl Document {
    /// Parses stdin.
    ///
    /// # Errors
    /// Code 6 if it is not a JSON object or its version is not one, code 1 for a version that is not supported.
    pub fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let decode = |what: String| {
            let message = format!("cannot decode the network configuration on stdin: {what}");
            Failure::new(code::DECODE, message).with_details("the runtime must send one JSON object")
        };
        let value: Value = serde_json::from_slice(bytes).map_err(|e| decode(e.to_string()))?;
        let Value::Object(fields) = value else { return Err(decode("it is no JSON object".into())) };
        let version = match fields.get("cniVersion") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.as_str()),
            Some(_) => return Err(decode("cniVersion is no string".into())),
        };
        Ok(Self { version: Version::of_config(version)?, fields })
    }

    /// Its fields.
    #[must_use]
    pub fn fields(&self) -> Fields<'_> {
        Fields::top(&self.fields)
    }

    /// Its fields as JSON.
    #[must_use]
    pub fn map(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// `prevResult`; null counts as absent (V6).
    #[must_use]
    pub fn prev_result(&self) -> Option<&Value> {
        self.fields().get("prevResult")
    }

    /// Refuses a command that the configuration's version does not have (C18).
    ///
    /// # Errors
    /// Code 1.
    pub fn at_least(&self, needed: Version, command: &str) -> Result<(), Failure> {
        if self.version >= needed {
            return Ok(());
        }
        let message =
            format!("{command} needs cniVersion {needed} or newer, the network configuration has {}", self.version);
        Err(Failure::new(code::INCOMPATIBLE_VERSION, message)
            .with_details(format!("configuration: {}; {command}: {needed} and newer", self.version)))
    }
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// Code 7 with the key.
    pub fn read(document: &Document) -> Result<Self, Failure> {
        let top = document.fields();
        let name = match top.string("name")? {
            Some(name) if valid_identifier(name) => name.to_owned(),
            Some(name) => {
                let rule = "must start with an ASCII letter or digit and hold only those, '_', '.' and '-'";
                return Err(Failure::new(code::CONFIG, format!("name {name:?} of the network configuration {rule}")));
            }
            None => return Err(Failure::new(code::CONFIG, "the network configuration has no name: add one")),
        };
        if let Some(kind) = top.string("type")?.filter(|t| t.contains('/')) {
            return Err(Failure::new(code::CONFIG, format!("type {kind:?} must be a file name without a path")));
        }
        let timeout = match top.number("timeout")? {
            Some(seconds @ 1..=30) => Some(Duration::from_secs(seconds)),
            Some(seconds) => {
                let message = format!("timeout {seconds} must be 1 to 30 seconds: correct the network configuration");
                return Err(Failure::new(code::CONFIG, message));
            }
            None => None,
        };
        let path = |key, default: &str| Ok(top.path(key)?.unwrap_or_else(|| PathBuf::from(default)));
        let unknown = top.keys().filter(|k| !KNOWN.contains(k) && !k.starts_with("cni.dev/"));
        let mut warnings: Vec<_> =
            unknown.map(|k| format!("unknown key {k:?} in the network configuration is ignored")).collect();
        if top.get("ipMasq").is_some() {
            warnings.push("ipMasq is ignored: masquerading is a setting of osmia-agent".into());
        }
        Ok(Self {
            name,
            socket: path("socket", "/run/osmia/cni.sock")?,
            state: path("state", "/var/lib/osmia")?,
            bpffs: path("bpffs", "/sys/fs/bpf/osmia")?,
            boot_id: path("bootId", "/proc/sys/kernel/random/boot_id")?,
            timeout,
            warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<Config, Failure> {
        Config::read(&Document::parse(value.to_string().as_bytes())?)
    }

    fn with(key: &str, value: Value) -> Value {
        let mut config = json!({"cniVersion": "1.0.0", "name": "osmia", "type": "osmia-cni"});
        config.as_object_mut().unwrap().insert(key.into(), value);
        config
    }

    #[test]
    fn the_installed_configuration_reads_without_a_word() {
        let config = read(&with("socket", json!("/run/osmia/cni.sock"))).unwrap();
        assert_eq!((config.name.as_str(), config.warnings.len()), ("osmia", 0));
        assert_eq!(config.state, PathBuf::from("/var/lib/osmia"));
    }

    /// The section of the plugin on its page has a line for each key, and for no other.
    #[test]
    fn the_page_has_every_key() {
        let page = include_str!("../../../docs/configuration.md");
        let section = page.split("\n## ").find(|section| section.starts_with("osmia-cni\n")).unwrap();
        let mut told: Vec<_> =
            section.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0)).collect();
        told.sort_unstable();
        let mut known = KNOWN;
        known.sort_unstable();
        assert_eq!(told, known);
    }

    /// C10, C11, C13, C15.
    #[test]
    fn unknown_keys_only_warn_and_reserved_ones_not_even_that() {
        let config = read(&with("frob", json!({"x": [1]}))).unwrap();
        assert!(config.warnings.iter().any(|w| w.contains("\"frob\"")));
        for key in ["capabilities", "cni.dev/valid-attachments", "cni.dev/future", "args", "disableCheck"] {
            assert!(read(&with(key, json!({}))).unwrap().warnings.is_empty(), "{key}");
        }
    }

    /// C16, E14, C8.
    #[test]
    fn each_fault_has_its_code() {
        for bytes in [&b""[..], b"{", b"[]", b"null", b"\xff", b"{} {}", br#"{"cniVersion": 1, "name": "x"}"#] {
            assert_eq!(Document::parse(bytes).unwrap_err().code, code::DECODE, "{bytes:?}");
        }
        assert_eq!(Document::parse(b"{}").unwrap_err().code, code::INCOMPATIBLE_VERSION);
        for (key, value) in [
            ("name", json!("")),
            ("name", json!(5)),
            ("name", json!("-x")),
            ("name", json!(null)),
            ("type", json!("/bin/x")),
            ("socket", json!(5)),
            ("socket", json!("run/x")),
            ("state", json!([])),
            ("timeout", json!(0)),
            ("timeout", json!(31)),
            ("timeout", json!("5")),
        ] {
            let failure = read(&with(key, value)).unwrap_err();
            assert!(failure.code == code::CONFIG && failure.message.contains(key), "{key}: {failure}");
        }
    }

    /// C18.
    #[test]
    fn a_command_older_configurations_do_not_have_is_refused() {
        let of = |v: &str| Document::parse(json!({"cniVersion": v, "name": "x"}).to_string().as_bytes()).unwrap();
        assert_eq!(of("0.3.1").at_least(Version::V0_4_0, "CHECK").unwrap_err().code, code::INCOMPATIBLE_VERSION);
        assert_eq!(of("1.0.0").at_least(Version::V1_1_0, "GC").unwrap_err().code, code::INCOMPATIBLE_VERSION);
        assert_eq!(of("0.4.0").at_least(Version::V0_4_0, "CHECK"), Ok(()));
    }

    #[test]
    fn a_deep_document_is_an_error_not_a_crash() {
        let deep = format!("{{\"cniVersion\":\"1.0.0\",\"x\":{}", "[".repeat(1 << 20));
        assert_eq!(Document::parse(deep.as_bytes()).unwrap_err().code, code::DECODE);
    }
}

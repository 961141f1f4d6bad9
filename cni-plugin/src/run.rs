//! One call from start to exit.
//!
//! Invariant: stdout carries exactly one JSON document or nothing, also after a panic, and the exit status says which: 0 with a
//! result or nothing, 1 with an error document. Everything else goes to stderr.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::protocol::Failure;
use crate::spec::error::code;
use crate::spec::{Call, Config, Document, Version};
use crate::verbs::{self, Context};

/// Longest configuration taken, bytes: far above any real one, far below what could hurt the node.
const MAX_STDIN: u64 = 8 << 20;

/// For a person who calls the plugin by hand.
const USAGE: &str = r#"
A container runtime calls it, with CNI_COMMAND and others in the environment and the configuration on stdin. A conflist that is enough:

  {"cniVersion": "1.0.0", "name": "osmia", "plugins": [{"type": "osmia-cni"}]}

Keys of its object, where osmia-agent has other folders than its default ones, with their defaults:
  socket   /run/osmia/cni.sock                DIR/cni.sock of the agent's --run DIR
  state    /var/lib/osmia                     the agent's --state: DELs are queued there while it is away
  bpffs    /sys/fs/bpf/osmia                  the agent's --bpffs
  bootId   /proc/sys/kernel/random/boot_id    the agent's --boot-id
  timeout  30 (ADD, GC), 15 (DEL)             seconds that a call may take, 1 to 30; only shortens

By hand: CNI_COMMAND=VERSION osmia-cni. All keys and error codes: docs/configuration.md, docs/operations.md.
"#;

/// Stdout has had its document.
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// Runs the plugin: environment and stdin in, stdout and exit status out.
#[must_use]
pub fn run() -> ExitCode {
    let started = Instant::now();
    let boot = clock_gettime(ClockId::Boottime);
    let started_ns = u64::try_from(boot.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(boot.tv_nsec).unwrap_or(0);
    std::panic::set_hook(Box::new(|info| {
        let failure = panicked(&info.to_string());
        eprintln!("osmia-cni: {}", failure.message);
        answer(&failure.document(Version::NEWEST));
        // Not back to the runtime's profile of unwinding or abort: a signal would hide the document.
        std::process::exit(1);
    }));
    let mut version = Version::NEWEST;
    match call(started, started_ns, &mut version) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(document)) if answer(&document) => ExitCode::SUCCESS,
        Ok(Some(_)) => ExitCode::FAILURE,
        Err(failure) => {
            answer(&failure.document(version));
            ExitCode::FAILURE
        }
    }
}

fn panicked(what: &str) -> Failure {
    let message = format!("osmia-cni {} has a fault: {}", env!("CARGO_PKG_VERSION"), what.replace('\n', " "));
    Failure::new(code::INTERNAL, message).with_details("please report it with this text").for_del()
}

/// Writes the one document; false if it was not taken.
fn answer(document: &Value) -> bool {
    if ANSWERED.swap(true, Ordering::SeqCst) {
        return true;
    }
    let mut out = io::stdout().lock();
    let written = out.write_all(format!("{document}\n").as_bytes()).and_then(|()| out.flush());
    if let Err(error) = &written {
        eprintln!("osmia-cni: nobody takes the result on stdout: {error}");
    }
    written.is_ok()
}

fn call(started: Instant, started_ns: u64, version: &mut Version) -> Result<Option<Value>, Failure> {
    let call = Call::read(|name| std::env::var_os(name)).inspect_err(|_| {
        if std::env::var_os("CNI_COMMAND").is_none() {
            eprintln!(
                "osmia-cni {}: a CNI plugin for {}.\n{USAGE}",
                env!("CARGO_PKG_VERSION"),
                crate::spec::version::list()
            );
        }
    })?;
    if call == Call::Version {
        return Ok(Some(verbs::version::version()));
    }
    let for_this_call = |failure: Failure| if matches!(call, Call::Del { .. }) { failure.for_del() } else { failure };
    let document = read_stdin().and_then(|bytes| Document::parse(&bytes)).map_err(for_this_call)?;
    *version = document.version;
    let config = Config::read(&document).map_err(for_this_call)?;
    for warning in &config.warnings {
        warn(warning);
    }
    let context = Context { started, started_ns, document, config };
    match &call {
        Call::Add(attach) => verbs::add::add(&context, attach).map(Some),
        Call::Del { key, netns } => {
            verbs::del::del(&context, key, netns.as_deref()).map_err(Failure::for_del).map(|()| None)
        }
        Call::Check(attach) => verbs::check::check(&context, attach).map(|()| None),
        Call::Status => verbs::status::status(&context).map(|()| None),
        Call::Gc => verbs::gc::gc(&context).map(|()| None),
        Call::Version => Ok(Some(verbs::version::version())),
    }
}

/// A line for the runtime's log.
pub(crate) fn warn(text: &str) {
    eprintln!("osmia-cni: warning: {text}");
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(MAX_STDIN + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::new(code::IO, format!("reading the network configuration on stdin: {e}")))?;
    if bytes.len() as u64 > MAX_STDIN {
        let message = format!("the network configuration on stdin is longer than {MAX_STDIN} bytes: correct it");
        return Err(Failure::new(code::DECODE, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_tells_the_defaults() {
        let (_, conflist) = USAGE.split_once("  {").unwrap();
        let (conflist, _) = conflist.split_once('\n').unwrap();
        let conflist: Value = serde_json::from_str(&format!("{{{conflist}")).unwrap();
        let config = serde_json::json!({"cniVersion": conflist["cniVersion"], "name": conflist["name"]});
        let config = Config::read(&Document::parse(config.to_string().as_bytes()).unwrap()).unwrap();
        for (key, path) in
            [("socket", config.socket), ("state", config.state), ("bpffs", config.bpffs), ("bootId", config.boot_id)]
        {
            let line = USAGE.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
            assert_eq!(line.split_whitespace().nth(1), path.to_str(), "{key}");
        }
    }

    /// A panic's text may hold anything: it must neither break the document nor read as success of a DEL.
    #[test]
    fn a_panic_becomes_an_error_document() {
        let document = panicked("panicked at src/x.rs:1:2:\nkey not found: \"\u{0}\"").document(Version::NEWEST);
        let text = document.to_string();
        assert_eq!(text.lines().count(), 1);
        assert!(!text.contains("not found"));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["code"], code::INTERNAL);
    }
}

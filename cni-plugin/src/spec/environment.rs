//! The environment of a call: which command, which attachment.

use std::ffi::OsString;

use super::error::code;
use crate::protocol::{AttachmentKey, Failure};

/// What the runtime asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// ADD.
    Add(Attach),
    /// DEL; the namespace may be gone or not be named at all.
    Del {
        /// The attachment.
        key: AttachmentKey,
        /// CNI_NETNS, if given.
        netns: Option<String>,
    },
    /// CHECK.
    Check(Attach),
    /// STATUS.
    Status,
    /// GC.
    Gc,
    /// VERSION.
    Version,
}

/// An attachment whose namespace must exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attach {
    /// The attachment.
    pub key: AttachmentKey,
    /// CNI_NETNS as given.
    pub netns: String,
    /// CNI_ARGS, not parsed yet; empty if not given.
    pub args: String,
}

impl Call {
    /// Reads the variables through `get`. Those that a command does not need are not looked at, whatever they hold.
    ///
    /// # Errors
    /// Code 4; all missing names are in one error. A variable that is set but empty counts as missing.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let get = |name: &str| -> Result<Option<String>, Failure> {
            let Some(value) = get(name).filter(|v| !v.is_empty()) else { return Ok(None) };
            value.into_string().map(Some).map_err(|v| {
                Failure::new(code::ENVIRONMENT, format!("{name} {v:?} is not UTF-8: the runtime must pass text"))
            })
        };
        let command = get("CNI_COMMAND")?.unwrap_or_default();
        match command.as_str() {
            "VERSION" => return Ok(Self::Version),
            "STATUS" => return Ok(Self::Status),
            "GC" => return Ok(Self::Gc),
            "ADD" | "DEL" | "CHECK" | "" => {}
            other => {
                return Err(Failure::new(
                    code::ENVIRONMENT,
                    format!("CNI_COMMAND {other:?} is unknown: ADD, DEL, CHECK, STATUS, GC and VERSION are served"),
                ));
            }
        }
        let (id, ifname, netns) = (get("CNI_CONTAINERID")?, get("CNI_IFNAME")?, get("CNI_NETNS")?);
        let mut missing = Vec::new();
        for (name, there) in [
            ("CNI_COMMAND", !command.is_empty()),
            ("CNI_CONTAINERID", id.is_some()),
            ("CNI_NETNS", netns.is_some() || command == "DEL"),
            ("CNI_IFNAME", ifname.is_some()),
        ] {
            if !there {
                missing.push(name);
            }
        }
        if !missing.is_empty() {
            let names = missing.join(", ");
            let message = format!(
                "missing in the environment: {names}; a container runtime sets them, osmia-cni is not run by hand"
            );
            return Err(Failure::new(code::ENVIRONMENT, message));
        }
        let key = AttachmentKey::new(id.unwrap_or_default(), ifname.unwrap_or_default())
            .map_err(|e| Failure::new(code::ENVIRONMENT, e.to_string()))?;
        if command == "DEL" {
            return Ok(Self::Del { key, netns });
        }
        let attach = Attach { key, netns: netns.unwrap_or_default(), args: get("CNI_ARGS")?.unwrap_or_default() };
        Ok(if command == "ADD" { Self::Add(attach) } else { Self::Check(attach) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Call, Failure> {
        Call::read(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v)))
    }

    const FULL: [(&str, &str); 4] =
        [("CNI_CONTAINERID", "c1"), ("CNI_NETNS", "/run/netns/x"), ("CNI_IFNAME", "eth0"), ("CNI_ARGS", "A=b")];

    fn with(command: &str) -> Vec<(&str, &str)> {
        FULL.into_iter().chain([("CNI_COMMAND", command)]).collect()
    }

    /// E1 to E5.
    #[test]
    fn each_command_takes_what_it_needs() {
        let key = AttachmentKey::new("c1", "eth0").unwrap();
        let attach = Attach { key: key.clone(), netns: "/run/netns/x".into(), args: "A=b".into() };
        assert_eq!(read(&with("ADD")), Ok(Call::Add(attach.clone())));
        assert_eq!(read(&with("CHECK")), Ok(Call::Check(attach)));
        assert_eq!(read(&with("DEL")), Ok(Call::Del { key, netns: Some("/run/netns/x".into()) }));
        for (command, call) in [("STATUS", Call::Status), ("GC", Call::Gc), ("VERSION", Call::Version)] {
            assert_eq!(read(&[("CNI_COMMAND", command)]), Ok(call));
        }
    }

    /// E10, E11, E16.
    #[test]
    fn all_missing_names_are_in_one_error() {
        for (vars, names) in [
            (vec![("CNI_COMMAND", "ADD"), ("CNI_IFNAME", "")], vec!["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]),
            (vec![("CNI_COMMAND", "DEL")], vec!["CNI_CONTAINERID", "CNI_IFNAME"]),
            (vec![], vec!["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]),
            (FULL.to_vec(), vec!["CNI_COMMAND"]),
        ] {
            let failure = read(&vars).unwrap_err();
            assert_eq!(failure.code, code::ENVIRONMENT);
            let named: Vec<_> = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]
                .into_iter()
                .filter(|n| failure.message.contains(n))
                .collect();
            assert_eq!(named, names);
        }
        assert!(read(&with("FROB")).unwrap_err().message.contains("FROB"));
    }

    /// E12: podman sends the word `dummy` and an empty container id with VERSION.
    #[test]
    fn version_looks_at_nothing_else() {
        let vars = [("CNI_COMMAND", "VERSION"), ("CNI_CONTAINERID", ""), ("CNI_IFNAME", "a/b"), ("CNI_NETNS", "dummy")];
        assert_eq!(read(&vars), Ok(Call::Version));
    }

    /// E13, E15.
    #[test]
    fn a_bad_key_is_refused_for_what_needs_it() {
        for (name, value) in [("CNI_CONTAINERID", "-x"), ("CNI_IFNAME", "a b"), ("CNI_IFNAME", "sixteen-bytes-xx")] {
            let mut vars = with("DEL");
            vars.retain(|(n, _)| *n != name);
            vars.push((name, value));
            let failure = read(&vars).unwrap_err();
            assert!(failure.code == code::ENVIRONMENT && failure.message.contains(name), "{failure:?}");
        }
    }

    #[test]
    fn a_value_that_is_no_text_is_named() {
        use std::os::unix::ffi::OsStringExt;
        let failure = Call::read(|name| match name {
            "CNI_COMMAND" => Some("DEL".into()),
            "CNI_IFNAME" => Some(OsString::from_vec(vec![0xff])),
            _ => Some("x".into()),
        })
        .unwrap_err();
        assert!(failure.code == code::ENVIRONMENT && failure.message.contains("CNI_IFNAME"));
    }
}

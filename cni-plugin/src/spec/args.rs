//! CNI_ARGS: `K=V` pairs with `;` between.

use super::error::code;
use crate::protocol::{Failure, PodRef};

/// What CNI_ARGS says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Args {
    /// The Kubernetes pod; its parts are empty where the caller is not Kubernetes.
    pub pod: PodRef,
    /// IP: the address wanted, with or without a prefix.
    pub ip: Option<String>,
    /// MAC: the Ethernet address wanted.
    pub mac: Option<String>,
    /// GATEWAY.
    pub gateway: Option<String>,
}

impl Args {
    /// Parses it as the reference library does: each pair has exactly one `=`; unknown keys are an error unless IgnoreUnknown is set;
    /// the order is free.
    ///
    /// # Errors
    /// Code 4 with the pair or the key.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |what: String| Failure::new(code::ENVIRONMENT, format!("CNI_ARGS: {what}"));
        let mut args = Self::default();
        let mut unknown = Vec::new();
        let mut ignore_unknown = false;
        for pair in text.split(';').filter(|_| !text.is_empty()) {
            let parts: Vec<_> = pair.split('=').collect();
            let [key, value] = parts.as_slice() else {
                return Err(bad(format!("{pair:?} must be KEY=VALUE with one '=' and pairs joined by ';'")));
            };
            let value = (*value).to_owned();
            match *key {
                "K8S_POD_NAMESPACE" => args.pod.namespace = value,
                "K8S_POD_NAME" => args.pod.name = value,
                "K8S_POD_UID" => args.pod.uid = value,
                "K8S_POD_INFRA_CONTAINER_ID" => {}
                "IP" => args.ip = Some(value),
                "MAC" => args.mac = Some(value),
                "GATEWAY" => args.gateway = Some(value),
                "IgnoreUnknown" => {
                    ignore_unknown = match value.to_ascii_lowercase().as_str() {
                        "1" | "true" => true,
                        "0" | "false" => false,
                        _ => return Err(bad(format!("IgnoreUnknown {value:?} must be 1, true, 0 or false"))),
                    }
                }
                other => unknown.push(other),
            }
        }
        if unknown.is_empty() || ignore_unknown {
            return Ok(args);
        }
        Err(bad(format!("unknown keys {unknown:?}: add IgnoreUnknown=1 or leave them out")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E17: containerd builds the string from a map, so the order changes on each call.
    #[test]
    fn reads_what_containerd_sends_in_any_order() {
        let pairs = ["K8S_POD_NAME=web-0", "IgnoreUnknown=1", "K8S_POD_UID=u", "K8S_POD_NAMESPACE=shop", "X=y"];
        for start in 0..pairs.len() {
            let turned: Vec<_> = pairs.iter().cycle().skip(start).take(pairs.len()).copied().collect();
            let args = Args::parse(&turned.join(";")).unwrap();
            assert_eq!(args.pod, PodRef { namespace: "shop".into(), name: "web-0".into(), uid: "u".into() });
        }
        assert_eq!(Args::parse(""), Ok(Args::default()));
        assert_eq!(
            Args::parse("IgnoreUnknown=TRUE;MAC=02:00:00:00:00:99;IP=10.0.0.9").unwrap().ip.unwrap(),
            "10.0.0.9"
        );
    }

    /// E17.
    #[test]
    fn refuses_what_the_reference_library_refuses() {
        for (text, says) in [
            ("A=b", "unknown keys [\"A\"]"),
            ("A=b;IgnoreUnknown=0", "unknown keys"),
            ("IgnoreUnknown=maybe", "IgnoreUnknown"),
            ("IgnoreUnknown=1;A=b=c", "\"A=b=c\""),
            ("IgnoreUnknown=1;A", "\"A\""),
            ("IgnoreUnknown=1;", "\"\""),
        ] {
            let failure = Args::parse(text).unwrap_err();
            assert_eq!(failure.code, code::ENVIRONMENT);
            assert!(failure.message.contains(says), "{text}: {failure}");
        }
    }
}

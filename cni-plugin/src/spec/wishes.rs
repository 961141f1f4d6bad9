//! What an ADD asks for beyond an interface: addresses, an Ethernet address, DNS. By precedence runtimeConfig, args.cni, CNI_ARGS.
//!
//! Invariant: a wish is granted or refused in words; none is dropped silently.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::error::code;
use super::fields::{Fields, lower_keys};
use super::result::Dns;
use super::{Args, Document, Mac};
use crate::protocol::Failure;

/// The wishes of one ADD.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wishes {
    /// Addresses, without a prefix: a pod's is always /32 or /128.
    pub addresses: Vec<IpAddr>,
    /// Ethernet address of the pod's end.
    pub mac: Option<Mac>,
    /// DNS to return.
    pub dns: Dns,
    /// What is ignored, for stderr.
    pub warnings: Vec<String>,
}

/// `runtimeConfig` keys, in lower case, that need no action of a plugin like ours.
const NOT_OURS: [&str; 5] =
    ["aliases", "cgrouppath", "io.kubernetes.cri.pod-annotations", "deviceid", "infinibandguid"];

impl Wishes {
    /// Reads them.
    ///
    /// # Errors
    /// Code 2 for what Osmia does not do, with key and value; code 7 or 4 for what cannot be read.
    pub fn read(document: &Document, args: &Args) -> Result<Self, Failure> {
        let top = document.fields();
        if let Some(kind) = top.object("ipam", "ipam.")?.string("type")?.filter(|t| !t.is_empty()) {
            return Err(unsupported("ipam.type", &json!(kind), "osmia-agent allocates addresses itself; remove ipam"));
        }
        let lowered = match top.get("runtimeConfig") {
            None => Value::Null,
            Some(value @ Value::Object(_)) => lower_keys(value),
            Some(other) => return Err(top.wrong("runtimeConfig", other, "an object")),
        };
        let runtime = Fields::below(&lowered, "runtimeConfig.");
        let mut wishes = Self::default();
        for key in runtime.keys() {
            match key {
                "portmappings" => no_host_port(runtime)?,
                "bandwidth" => no_bandwidth(runtime)?,
                "ips" | "mac" | "dns" => {}
                key if NOT_OURS.contains(&key) => {}
                key => wishes.warnings.push(format!("runtimeConfig.{key} is ignored")),
            }
        }
        let conventional = top.object("args", "args.")?.object("cni", "args.cni.")?;
        wishes.dns = dns(top, runtime)?;
        wishes.mac = mac(runtime.string("mac")?, "runtimeConfig.mac", code::CONFIG)?;
        if wishes.mac.is_none() {
            wishes.mac = mac(args.mac.as_deref(), "CNI_ARGS: MAC", code::ENVIRONMENT)?;
        }
        let (texts, name, code) = match (runtime.strings("ips")?, conventional.strings("ips")?) {
            (texts, _) if !texts.is_empty() => (texts, "runtimeConfig.ips", code::CONFIG),
            (_, texts) if !texts.is_empty() => (texts, "args.cni.ips", code::CONFIG),
            _ => (args.ip.clone().into_iter().collect(), "CNI_ARGS: IP", code::ENVIRONMENT),
        };
        for text in texts {
            let address = text.split('/').next().unwrap_or_default();
            wishes
                .addresses
                .push(address.parse().map_err(|_| Failure::new(code, format!("{name}: {text:?} is no IP address")))?);
        }
        if args.gateway.is_some() {
            wishes.warnings.push("CNI_ARGS: GATEWAY is ignored: a pod's gateway is always link-local".into());
        }
        Ok(wishes)
    }

    /// What the agent is told of them.
    #[must_use]
    pub fn for_agent(&self) -> Value {
        json!({"ips": self.addresses, "mac": self.mac.map(|m| m.to_string())})
    }
}

fn unsupported(key: &str, value: &Value, advice: &str) -> Failure {
    Failure::new(code::UNSUPPORTED_FIELD, format!("{key} {value} is not supported: {advice}"))
}

fn mac(text: Option<&str>, name: &str, code: u32) -> Result<Option<Mac>, Failure> {
    let Some(text) = text.filter(|t| !t.is_empty()) else { return Ok(None) };
    let refuse = |why: String| Failure::new(code, format!("{name}: {why}"));
    let mac: Mac = text.parse().map_err(|e: super::mac::MacError| refuse(e.to_string()))?;
    if mac.is_station() { Ok(Some(mac)) } else { Err(refuse(format!("{text} is a group address or zero"))) }
}

/// A mapping with host port 0 means nothing (the reference plugins ignore it as well).
fn no_host_port(runtime: Fields<'_>) -> Result<(), Failure> {
    for mapping in runtime.list("portmappings")? {
        if mapping.get("hostport").and_then(Value::as_u64) != Some(0) {
            let advice = "chain the portmap plugin after osmia-cni and declare the capability there";
            return Err(unsupported("runtimeConfig.portMappings", mapping, advice));
        }
    }
    Ok(())
}

fn no_bandwidth(runtime: Fields<'_>) -> Result<(), Failure> {
    let limits = runtime.object("bandwidth", "runtimeConfig.bandwidth.")?;
    for rate in ["ingressrate", "egressrate"] {
        if limits.number(rate)?.is_some_and(|bits| bits > 0) {
            let value = runtime.get("bandwidth").cloned().unwrap_or_default();
            return Err(unsupported("runtimeConfig.bandwidth", &value, "remove the pod's bandwidth annotations"));
        }
    }
    Ok(())
}

/// `dns` of the configuration, over it what the runtime says.
fn dns(top: Fields<'_>, runtime: Fields<'_>) -> Result<Dns, Failure> {
    if runtime.get("dns").is_some() {
        let dns = runtime.object("dns", "runtimeConfig.dns.")?;
        return Ok(Dns {
            nameservers: dns.strings("servers")?,
            domain: String::new(),
            search: dns.strings("searches")?,
            options: dns.strings("options")?,
        });
    }
    let dns = top.object("dns", "dns.")?;
    Ok(Dns {
        nameservers: dns.strings("nameservers")?,
        domain: dns.string("domain")?.unwrap_or_default().to_owned(),
        search: dns.strings("search")?,
        options: dns.strings("options")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(extra: &Value, args: &str) -> Result<Wishes, Failure> {
        let mut config = json!({"cniVersion": "1.0.0", "name": "x"});
        config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        Wishes::read(&Document::parse(config.to_string().as_bytes()).unwrap(), &Args::parse(args).unwrap())
    }

    /// cni.md section 1.9: runtimeConfig before args.cni before CNI_ARGS; take-away 5: keys without regard to case.
    #[test]
    fn precedence_and_spelling() {
        let args = "IP=10.0.0.3;MAC=02:00:00:00:00:03";
        let conventional = json!({"cni": {"ips": ["10.0.0.2/24"]}});
        for key in ["ips", "IPs", "Ips"] {
            let wishes = read(
                &json!({"runtimeConfig": {key: ["10.0.0.1/16", "fd00::1"], "Mac": "02:00:00:00:00:01"}, "args": conventional}),
                args,
            );
            let wishes = wishes.unwrap();
            assert_eq!(wishes.addresses, ["10.0.0.1".parse::<IpAddr>().unwrap(), "fd00::1".parse().unwrap()]);
            assert_eq!(wishes.mac.unwrap().to_string(), "02:00:00:00:00:01");
        }
        let wishes = read(&json!({"args": conventional}), args).unwrap();
        assert_eq!(wishes.addresses, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        assert_eq!(read(&json!({}), args).unwrap().addresses, ["10.0.0.3".parse::<IpAddr>().unwrap()]);
        assert_eq!(read(&json!({"runtimeConfig": null, "args": null}), ""), Ok(Wishes::default()));
    }

    /// X2, code 2: the text holds key and value.
    #[test]
    fn what_is_not_served_is_refused_in_both_spellings() {
        for (config, says) in [
            (json!({"runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80}]}}), "8080"),
            (json!({"runtimeConfig": {"portMappings": [{"HostPort": 8080, "ContainerPort": 80}]}}), "8080"),
            (json!({"runtimeConfig": {"bandwidth": {"IngressRate": 1000}}}), "1000"),
            (json!({"ipam": {"type": "host-local"}}), "host-local"),
        ] {
            let failure = read(&config, "").unwrap_err();
            assert!(failure.code == code::UNSUPPORTED_FIELD && failure.message.contains(says), "{failure}");
        }
        for config in [
            json!({"runtimeConfig": {"portMappings": [{"HostPort": 0, "ContainerPort": 80}], "bandwidth": {"ingressRate": 0}}}),
            json!({"runtimeConfig": {"aliases": ["a"], "io.kubernetes.cri.pod-annotations": {"a": "b"}}, "ipam": {}}),
        ] {
            assert_eq!(read(&config, "").unwrap().warnings, Vec::<String>::new());
        }
    }

    #[test]
    fn dns_of_the_runtime_goes_before_the_configuration() {
        let config = json!({"dns": {"nameservers": ["10.0.0.10"], "domain": "d"}});
        assert_eq!(read(&config, "").unwrap().dns.nameservers, ["10.0.0.10"]);
        let config = json!({"dns": {"nameservers": ["10.0.0.10"]}, "runtimeConfig": {"DNS": {"Servers": ["10.0.0.11"], "Searches": ["s"]}}});
        let dns = read(&config, "").unwrap().dns;
        assert_eq!((dns.nameservers, dns.search), (vec!["10.0.0.11".to_owned()], vec!["s".to_owned()]));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for (config, args, code) in [
            (json!({"runtimeConfig": []}), "", code::CONFIG),
            (json!({"runtimeConfig": {"ips": "10.0.0.1"}}), "", code::CONFIG),
            (json!({"runtimeConfig": {"ips": ["x"]}}), "", code::CONFIG),
            (json!({"runtimeConfig": {"mac": "ff:ff:ff:ff:ff:ff"}}), "", code::CONFIG),
            (json!({"dns": 5}), "", code::CONFIG),
            (json!({}), "IP=x", code::ENVIRONMENT),
            (json!({}), "MAC=x", code::ENVIRONMENT),
        ] {
            assert_eq!(read(&config, args).unwrap_err().code, code, "{config} {args}");
        }
    }
}

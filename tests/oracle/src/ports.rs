//! Which traffic a rule speaks of (NetworkPolicyPort).

use k8s_openapi::{
    api::{core::v1::Pod, networking::v1::NetworkPolicyPort},
    apimachinery::pkg::util::intstr::IntOrString,
};

/// What a packet carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// Any other: the API defines nothing for it. Judged as the rest (decided so): a rule without ports covers it, none with ports does.
    Other,
}

/// Protocol and destination port of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Traffic {
    /// Protocol.
    pub protocol: Protocol,
    /// Destination port; 0 where the protocol has none.
    pub port: u16,
}

/// "If this field is empty or missing, this rule matches all ports (traffic not restricted by port)"; items are combined using a logical
/// OR. `destination` is the pod whose container ports give names their numbers.
pub(crate) fn is_covered(ports: Option<&[NetworkPolicyPort]>, destination: Option<&Pod>, traffic: Traffic) -> bool {
    match ports {
        None | Some([]) => true,
        Some(ports) => ports.iter().any(|port| is_this_port(port, destination, traffic)),
    }
}

fn is_this_port(item: &NetworkPolicyPort, destination: Option<&Pod>, traffic: Traffic) -> bool {
    // "If not specified, this field defaults to TCP."
    let name = item.protocol.as_deref().unwrap_or("TCP");
    let protocol = match name {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        _ => return false,
    };
    if traffic.protocol != protocol {
        return false;
    }
    let port = i32::from(traffic.port);
    match (&item.port, item.end_port) {
        // "If this field is not provided, this matches all port names and numbers."
        (None, None) => true,
        // "The endPort cannot be defined if the port field is not defined or if the port field is defined as a named port."
        (None | Some(IntOrString::String(_)), Some(_)) => false,
        (Some(IntOrString::Int(only)), None) => (1..=65535).contains(only) && port == *only,
        (Some(IntOrString::Int(first)), Some(last)) => {
            (1..=65535).contains(first) && (*first..=65535).contains(&last) && (*first..=last).contains(&port)
        }
        (Some(IntOrString::String(wanted)), None) => destination.is_some_and(|pod| has_port(pod, wanted, name, port)),
    }
}

/// Whether a container of the pod names this port. Sidecars (init containers that go on running) count as containers.
fn has_port(pod: &Pod, wanted: &str, protocol: &str, port: i32) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten()).any(|p| {
        p.name.as_deref() == Some(wanted)
            && p.protocol.as_deref().unwrap_or("TCP") == protocol
            && p.container_port == port
    })
}

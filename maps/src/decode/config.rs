//! The running configuration.

use osmia_ebpf::layout::{
    Addr, Config,
    config::{C_DENY_LINK_LOCAL, C_IPV6, C_STACK_SERVICES},
};

use super::{
    Cell, Context, Record,
    codec::{Codec, exact},
    slots,
};
use crate::tables;

const FLAGS: [(u32, &str); 3] =
    [(C_IPV6, "ipv6"), (C_STACK_SERVICES, "stack_services"), (C_DENY_LINK_LOCAL, "deny_link_local")];

/// The fields of the configuration.
#[must_use]
pub fn value(config: &Config, context: &Context) -> Record {
    let number = |n: u32| Cell::Number(u64::from(n));
    Record::new()
        .with("node4", Cell::v4(config.node4))
        .with("node6", Cell::address(Addr::v6(config.node6)))
        .with("pod_mtu", number(config.pod_mtu.into()))
        .with("door_host", context.device(config.door_host))
        .with("door_pods", context.device(config.door_pods))
        .with("tunnel_device", context.device(config.tunnel_dev))
        .with("tunnel_port", number(u16::from_be_bytes(config.tunnel_port).into()))
        .with("vni", number(config.vni))
        .with("mark", Cell::Text(format!("{:#x}", config.mark).into()))
        .with("flags", Cell::flags(config.flags, &FLAGS))
        .with("masquerade_ports", Cell::Text(format!("{}-{}", config.masq_min, config.masq_max).into()))
        .with("gateway_mac", Cell::Mac(config.gateway_mac))
        .with("endpoint_flows", number(config.endpoint_flows))
        .with("too_big_rate", number(config.too_big_rate))
        .with("ticks_per_second", number(config.ticks_per_second))
}

pub(super) static CONFIG: Codec<u32, Config> = Codec {
    spec: tables::CONFIG,
    about: "the running configuration, one row",
    key_help: "nothing, there is one row",
    example: "0",
    parse: slots::only_row,
    text: u32::to_string,
    key: slots::row_key,
    value,
    used: |config| *config != Config::default(),
    find: exact,
};

#[cfg(test)]
mod tests {
    use super::super::testing::{context, json};
    use super::*;

    #[test]
    fn a_configuration_is_shown_by_names() {
        let config = Config {
            mark: 0x100_0000,
            flags: C_IPV6,
            door_host: 4,
            door_pods: 3,
            vni: 1,
            tunnel_port: 4789_u16.to_be_bytes(),
            pod_mtu: 1450,
            masq_min: 61000,
            masq_max: 65535,
            node4: [192, 168, 0, 1],
            ..Config::default()
        };
        assert_eq!(
            value(&config, &context()).to_string(),
            "node4=192.168.0.1 pod_mtu=1450 door_host=#4 door_pods=#3 tunnel_port=4789 vni=1 mark=0x1000000 flags=ipv6 \
             masquerade_ports=61000-65535 gateway_mac=00:00:00:00:00:00 endpoint_flows=0 too_big_rate=0 ticks_per_second=0"
        );
    }

    #[test]
    fn bytes_nobody_writes_are_shown_as_they_are() {
        let odd = Config { flags: u32::MAX, tunnel_dev: u32::MAX, node6: [255; 16], ..Config::default() };
        let text = json(&value(&odd, &context()));
        assert!(text.contains(r#""flags":["ipv6","stack_services","deny_link_local","0xfffffff8"]"#), "{text}");
        assert!(text.contains(r#""tunnel_device":{"ifindex":4294967295,"name":null}"#), "{text}");
    }
}

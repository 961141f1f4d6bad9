//! The switches of the network namespace that the agent reads or, beside kube-proxy alone, sets.

use std::{fs, io, path::Path};

use tracing::info;

/// Whether there is IPv6 here: `ipv6.disable=1` takes the whole folder away, `disable_ipv6` for all devices leaves nothing to use.
pub(super) fn has_ipv6() -> bool {
    allows_ipv6("all")
}

/// Whether a device may have IPv6 addresses.
pub(super) fn allows_ipv6(device: &str) -> bool {
    let path = Path::new("/proc/sys/net/ipv6/conf").join(device).join("disable_ipv6");
    fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

/// Lets the stack forward: what goes to services by kube-proxy's rules comes back to us that way.
pub(super) fn forward(v4: bool, v6: bool) -> io::Result<()> {
    let switches = [(v4, "/proc/sys/net/ipv4/ip_forward"), (v6, "/proc/sys/net/ipv6/conf/all/forwarding")];
    for (_, path) in switches.into_iter().filter(|&(wanted, _)| wanted) {
        if fs::read_to_string(path)?.trim() != "1" {
            fs::write(path, "1")?;
            info!(path, "set to 1, since service ranges are set");
        }
    }
    Ok(())
}

/// Lets the kernel answer `bpf_fib_lookup` for packets that come in by this device: without forwarding there it refuses, whatever the
/// routes say (tried). Nothing is forwarded by the stack from it: our program asks in its name.
pub(super) fn answer_for(device: &str, ipv6: bool) -> io::Result<()> {
    let families: &[&str] = if ipv6 { &["ipv4", "ipv6"] } else { &["ipv4"] };
    for family in families {
        let path = format!("/proc/sys/net/{family}/conf/{device}/forwarding");
        if fs::read_to_string(&path)?.trim() != "1" {
            fs::write(&path, "1")?;
        }
    }
    Ok(())
}

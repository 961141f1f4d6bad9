//! What the tests of this target share.

use std::net::{IpAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::{Lab, Node, Options, Pod, Space};

pub(crate) fn lab(options: Options) -> Lab {
    let lab = Lab::build(options).unwrap();
    lab.start_agents().unwrap_or_else(|err| panic!("{err:#}"));
    lab
}

pub(crate) fn pod(lab: &Lab, node: usize, name: &str) -> Pod {
    lab.add_pod(node, name).unwrap_or_else(|err| panic!("{err:#}"))
}

/// Packets dropped for this reason, as the command line tool tells them.
pub(crate) fn dropped(node: &Node, reason: &str) -> u64 {
    let told = node.osmia(&["drop", "--json", "--reason", reason]).unwrap();
    assert!(told.status.success(), "{}", told.text());
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let reasons = told["reasons"].as_array().unwrap();
    reasons.iter().map(|row| row["packets"].as_u64().unwrap()).sum()
}

/// A counter of the node's programs, as the command line tool tells it.
pub(crate) fn counted(node: &Node, name: &str) -> u64 {
    let told = node.osmia(&["map", "get", "stats", name, "--json"]).unwrap();
    assert!(told.status.success(), "{}", told.text());
    let told: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    told["value"]["count"].as_u64().unwrap()
}

/// All drops of a node, for a message.
pub(crate) fn story(node: &Node) -> String {
    node.osmia(&["drop"]).map_or_else(|err| format!("{err:#}"), |told| format!("{}:\n{}", node.name, told.stdout))
}

/// Until it is so, or 5 s are over.
pub(crate) fn becomes(mut so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(5);
    while !so() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}

/// A socket that waits for 400 ms at most.
pub(crate) fn receiver(space: &Space, address: IpAddr) -> (UdpSocket, u16) {
    let socket = space.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

//! Two agents that share pins, state or socket folder: the second one goes, and says which one stays.

use std::fs;
use std::process::Command;

use osmia_lab::{Options, Subnet, bin_dir};

use crate::stage::{lab, pod};

#[test]
fn a_second_agent_on_the_same_pins_goes_and_names_the_first() {
    let lab = lab(Options { nodes: vec![Subnet::Near], ..Options::default() });
    let node = &lab.nodes[0];
    let first = node.agent().as_ref().unwrap().pid();
    let other = lab.folder().join("other");
    fs::create_dir_all(&other).unwrap();
    for shared in ["--bpffs", "--run", "--state"] {
        // One that is not refused would go on for ever.
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "20"]).arg(bin_dir().unwrap().join("osmia-agent"));
        command.args(["--node", "n1", "--metrics", "off"]);
        command.arg("--source").arg(format!("folder:{}", node.paths.manifests.display()));
        command.arg("--boot-id").arg(&node.paths.boot_id);
        for (flag, path) in [("--bpffs", &node.paths.bpffs), ("--run", &node.paths.run), ("--state", &node.paths.state)]
        {
            // Pins have to be on the bpffs.
            let own = if flag == "--bpffs" { path.join("other") } else { other.join(&flag[2..]) };
            command.arg(flag).arg(if flag == shared { path } else { &own });
        }
        let ended = node.space.feed(&mut command, "").unwrap();
        assert!(!ended.status.success(), "{shared}: {}", ended.text());
        for part in [format!("another osmia-agent uses {shared} "), format!("process {first} ("), "--node n1".into()] {
            assert!(ended.text().contains(&part), "{part}: {}", ended.text());
        }
    }
    pod(&lab, 0, "a");
}

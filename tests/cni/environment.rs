//! The environment of a call.

use crate::node::Node;

const NAMES: [&str; 4] = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"];

/// E1 to E4, E10, E11: all missing names in one error, code 4. A set but empty variable is missing.
#[test]
fn all_missing_names_are_in_one_error() {
    let node = Node::new();
    let none = node.call("").without("CNI_COMMAND");
    for (call, missing) in [
        (none.clone(), NAMES.to_vec()),
        (none.env("CNI_CONTAINERID", "c1"), vec!["CNI_COMMAND", "CNI_NETNS", "CNI_IFNAME"]),
        (node.call("ADD"), NAMES[1..].to_vec()),
        (node.call("CHECK").env("CNI_IFNAME", "eth0"), vec!["CNI_CONTAINERID", "CNI_NETNS"]),
        (node.call("DEL"), vec!["CNI_CONTAINERID", "CNI_IFNAME"]),
        (node.call("ADD").env("CNI_NETNS", "").env("CNI_CONTAINERID", "c").env("CNI_IFNAME", "e"), vec!["CNI_NETNS"]),
    ] {
        let text = call.run().error(4);
        let named: Vec<_> = NAMES.into_iter().filter(|n| text.contains(n)).collect();
        assert_eq!(named, missing, "{text}");
    }
}

/// E16.
#[test]
fn an_unknown_command_is_refused_and_none_says_what_this_is() {
    let node = Node::new();
    for command in ["FROB", "add", "ADD "] {
        assert!(node.call(command).run().error(4).contains(command));
    }
    let said = node.call("").without("CNI_COMMAND").run();
    said.error(4);
    assert!(said.stderr().contains("osmia-cni") && said.stderr().contains("0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"));
}

/// E13, E15.
#[test]
fn bad_names_are_refused() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    for (variable, values) in [
        ("CNI_CONTAINERID", vec!["-x", ".x", "a/b", "a b", "ä", "../../etc"]),
        ("CNI_IFNAME", vec![".", "..", "a/b", "a:b", "a b", "a\u{a0}b", "sixteen-bytes-xx"]),
    ] {
        for value in values {
            for command in ["ADD", "DEL", "CHECK"] {
                assert!(pod.call(command).env(variable, value).run().error(4).contains(variable), "{value}");
            }
        }
    }
    assert_eq!(agent.asked(), Vec::<&str>::new());
    // The longest name, and one character.
    pod.call("ADD").env("CNI_IFNAME", "fifteen-bytes-x").env("CNI_CONTAINERID", "a").run().result();
}

/// E17.
#[test]
fn args_are_judged_as_the_reference_library_does() {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    for args in [
        "A=b",
        "A=b;IgnoreUnknown=false",
        "IgnoreUnknown=yes",
        "IgnoreUnknown=1;A=b=c",
        "IgnoreUnknown=1;A",
        "IgnoreUnknown=1;",
    ] {
        assert!(pod.call("ADD").env("CNI_ARGS", args).run().error(4).contains("CNI_ARGS"), "{args}");
    }
    assert_eq!(agent.asked(), Vec::<&str>::new());
    for (i, args) in ["", "A=b;IgnoreUnknown=1", "IgnoreUnknown=true;A=b", "IgnoreUnknown=True;K8S_POD_NAME=x;A="]
        .into_iter()
        .enumerate()
    {
        node.pod(&format!("d{i}")).call("ADD").env("CNI_ARGS", args).run().result();
    }
}

/// E6, E10, E20: no CNI_PATH is needed, and what a newer library injects is ignored.
#[test]
fn other_variables_do_not_matter() {
    let node = Node::new();
    let _agent = node.agent();
    let call = node.pod("c1").call("ADD").env("TRACEPARENT", "00-x").env("BAGGAGE", "=;=").env("CNI_PATH", "");
    call.run().result();
}

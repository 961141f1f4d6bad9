//! Configurations as they should not be.

use std::io::pipe;

use serde_json::{Value, json};

use crate::fake_agent::FakeAgent;
use crate::node::{Node, Pod};

fn with_agent(test: impl FnOnce(&Node, &Pod<'_>, &FakeAgent)) {
    let node = Node::new();
    let agent = node.agent();
    let pod = node.pod("c1");
    test(&node, &pod, &agent);
}

/// C16, X1: no JSON, not an object, nothing at all, a megabyte of garbage.
#[test]
fn garbage_is_code_6() {
    with_agent(|_, pod, agent| {
        let deep = format!("{{\"cniVersion\":\"1.0.0\",\"name\":\"x\",\"a\":{}", "[".repeat(1 << 20));
        let random: String =
            (0..1 << 20).map(|i: u32| char::from((i.wrapping_mul(2_654_435_761) >> 25) as u8)).collect();
        for text in
            ["", "{", "[]", "null", "5", "{} {}", "\u{0}", &deep, &random, &"{".repeat(1 << 20), &" ".repeat(9 << 20)]
        {
            let start: String = text.chars().take(20).collect();
            let said = pod.call("ADD").stdin(text).run().error(6);
            assert!(said.len() < 500, "{start:?}: the text repeats the input");
        }
        assert_eq!(agent.asked(), Vec::<&str>::new());
    });
}

/// C15: a megabyte of unknown keys is fine; each is named on stderr, none on stdout. X5: values are not.
#[test]
fn unknown_keys_only_warn() {
    with_agent(|_, pod, _| {
        let said =
            pod.call("ADD").with("frob", json!("s3cret")).with("capabilities", json!({"portMappings": true})).run();
        said.result();
        assert!(
            said.stderr().contains("\"frob\"")
                && !said.stderr().contains("s3cret")
                && !said.stderr().contains("capabilities")
        );
    });
    with_agent(|node, pod, _| {
        let mut config = node.config("1.0.0");
        for i in 0..20_000 {
            config[format!("key-{i}")] = json!({"value": [i, "0123456789012345678901234567"]});
        }
        assert!(config.to_string().len() > 1 << 20);
        pod.call("ADD").config(config).run().result();
    });
}

/// C13: the reserved prefix is ignored without a word.
#[test]
fn reserved_keys_are_ignored() {
    with_agent(|_, pod, _| {
        let said = pod.call("ADD").with("cni.dev/future", json!({"a": 1})).run();
        said.result();
        assert_eq!(said.stderr(), "");
    });
}

/// Wrong types: code 7 with the key, for every command that reads them; X5.
#[test]
fn wrong_types_name_the_key() {
    with_agent(|node, pod, agent| {
        for (key, value) in [
            ("name", json!(5)),
            ("name", json!("../x")),
            ("name", Value::Null),
            ("socket", json!({"s3cret": 1})),
            ("socket", json!("relative.sock")),
            ("state", json!(5)),
            ("bpffs", json!([])),
            ("bootId", json!(false)),
            ("timeout", json!("30")),
            ("timeout", json!(-1)),
            ("timeout", json!(1e9)),
            ("type", json!(["s3cret"])),
        ] {
            for command in ["ADD", "DEL", "STATUS", "GC"] {
                let text = pod.call(command).with(key, value.clone()).run().error(7);
                assert!(text.contains(key) && !text.contains("s3cret"), "{key}: {text}");
            }
        }
        for (key, value) in [("runtimeConfig", json!([])), ("args", json!(1)), ("ipam", json!("x")), ("dns", json!(5))]
        {
            let text = pod.call("ADD").with(key, value).run().error(7);
            assert!(text.contains(key), "{text}");
        }
        let long = format!("/{}", "x".repeat(200));
        pod.call("ADD").config(node.config("1.0.0")).with("socket", json!(long)).run().error(11);
        assert_eq!(agent.asked(), Vec::<&str>::new());
    });
}

/// C1, C17, R13: versions.
#[test]
fn versions_are_judged() {
    with_agent(|node, pod, agent| {
        for version in [json!("0.1.0"), json!("0.2.0"), json!("1.2.0"), json!("2.0.0"), json!(""), Value::Null] {
            let mut config = node.config("1.0.0");
            config["cniVersion"] = version.clone();
            let text = pod.call("ADD").config(config).run().error(1);
            assert!(text.contains("0.3.0") && text.contains("1.1.0"), "both sides are named: {text}");
        }
        for version in [json!("x"), json!("1.0.0.0"), json!(1)] {
            let mut config = node.config("1.0.0");
            config["cniVersion"] = version;
            pod.call("ADD").config(config).run().error(6);
        }
        assert_eq!(agent.asked(), Vec::<&str>::new());
    });
}

/// X4: a runtime that is gone takes no result; that is no success.
#[test]
fn a_result_that_nobody_takes_is_a_failure() {
    with_agent(|node, _, _| {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let out = node.call("VERSION").command().stdout(writer).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&out.stderr).contains("stdout"));
    });
}

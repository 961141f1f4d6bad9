//! What `osmia explain` says of the maps of a plane: its lookup at every question, the process with its names and exit code at some.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};
use osmia_lab::{bin_dir, random};
use osmia_maps::catalogue::{self, Catalogue};
use osmia_maps::judge::{Judge, Packet};
use osmia_maps::layout::DropReason;
use osmia_maps::{Access, Pins, tables};
use osmia_oracle::{Protocol, Verdict};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use serde_json::{Value, json};

use super::ask::{Carried, Question, number};
use super::plane::Outcome;
use super::truth::Answer;
use crate::cluster::addr;

/// Exit code of a denied packet (`osmia explain --help`).
const DENIED: i32 = 5;

/// The maps, open read-only, and a run folder for the process.
pub(crate) struct Explain {
    judge: Judge,
    pins: Pins,
    run: PathBuf,
}

impl Drop for Explain {
    fn drop(&mut self) {
        // What can not be removed stays in the temporary folder.
        let _ = fs::remove_dir_all(&self.run);
    }
}

impl Explain {
    pub(crate) fn open(pins: &Pins) -> Result<Self> {
        let run = env::temp_dir().join(format!("osm-explain-{:x}", random()));
        fs::create_dir(&run).context("a run folder")?;
        Ok(Self { judge: Judge::open(pins)?, pins: pins.clone(), run })
    }

    /// That it says what the programs did with the question's first packet; `named` are the cookies of the entry that it left.
    pub(crate) fn agrees(&self, question: &Question, outcome: Outcome, named: (u32, u32)) -> Result<(), TestCaseError> {
        let Some((proto, dport)) = traffic(question) else { return Ok(()) };
        let (src, dst) = (addr(question.from.address), addr(question.to.address));
        let answer = self.judge.packet(&Packet { src, dst, proto, dport, forwarded: false })?;
        let what = || format!("{question:?}: {outcome:?}, explained as {answer:?}");
        prop_assert_eq!(answer.allows(), Some(outcome == Outcome::Passed), "{}", what());
        let cookie = |side: &Option<osmia_maps::judge::Side>| side.map_or(0, |side| side.cookie());
        match outcome {
            Outcome::Left => prop_assert!(false, "{}", what()),
            Outcome::Passed => prop_assert_eq!((cookie(&answer.egress), cookie(&answer.ingress)), named, "{}", what()),
            Outcome::Dropped(_, by) => {
                // Who sends is asked first.
                let egress = answer.egress.filter(|side| !side.allows());
                let reason = if egress.is_some() { DropReason::PolicyEgress } else { DropReason::PolicyIngress };
                prop_assert!(outcome.is(reason), "{}", what());
                prop_assert_eq!(cookie(&egress.or(answer.ingress)), by, "{}", what());
            }
        }
        Ok(())
    }

    /// That the process says what the oracle does, names whom the oracle names, and finds rows and catalogue in accord.
    pub(crate) fn tells(
        &self,
        question: &Question,
        answer: &Answer,
        catalogue: &Catalogue,
    ) -> Result<(), TestCaseError> {
        let traffic = match question.carried {
            Carried::To(Protocol::Tcp, port) => format!("{port}/tcp"),
            Carried::To(Protocol::Udp, port) => format!("{port}/udp"),
            Carried::To(_, port) => format!("{port}/sctp"),
            Carried::Echo => "icmp".to_owned(),
            Carried::Loose(_) => return Ok(()),
        };
        self.write(catalogue)?;
        let (from, to) = (question.from.address.to_string(), question.to.address.to_string());
        let binary = bin_dir().map_err(|error| TestCaseError::fail(error.to_string()))?.join("osmia");
        let told = Command::new(binary)
            .args(["explain", &from, &to, &traffic, "--json", "--run"])
            .arg(&self.run)
            .arg("--bpffs")
            .arg(self.pins.root())
            .output()?;
        let document: Value = serde_json::from_slice(&told.stdout)
            .map_err(|error| TestCaseError::fail(format!("{error}: {}", String::from_utf8_lossy(&told.stderr))))?;
        let what = || format!("{question:?}, {answer:?}: {document}");
        let (code, verdict) = if answer.passes() { (0, "allow") } else { (DENIED, "deny") };
        prop_assert_eq!((told.status.code(), &document["verdict"]), (Some(code), &json!(verdict)), "{}", what());
        prop_assert_eq!(&document["stale"], &json!([]), "{}", what());
        let packet = &document["packets"][0];
        prop_assert_eq!(&packet["stale"], &json!([]), "{}", what());
        for (verdict, direction) in [(&answer.egress, "egress"), (&answer.ingress, "ingress")] {
            let side = &packet[direction];
            match verdict {
                None => {}
                Some(Verdict::NotIsolated) => prop_assert_eq!(&side["rule_set"], &Value::Null, "{}", what()),
                Some(Verdict::Allowed(rules)) => {
                    let reason = side["reason"].as_str().unwrap_or_default();
                    let is_one = |rule: &osmia_oracle::RuleName| {
                        let front = format!("{}/{} {direction}[{}]:", rule.namespace, rule.policy, rule.rule);
                        reason.starts_with(&front)
                    };
                    prop_assert!(rules.iter().any(is_one), "{direction} by {reason:?}: {}", what());
                }
                Some(Verdict::Denied(by)) => {
                    let mut by: Vec<String> =
                        by.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
                    by.sort();
                    prop_assert_eq!(&side["policies"], &json!(by), "{}", what());
                }
            }
        }
        Ok(())
    }

    fn write(&self, catalogue: &Catalogue) -> Result<(), TestCaseError> {
        let mut text = Vec::new();
        for line in catalogue.lines() {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        fs::write(catalogue::path(&self.run), text)?;
        let meta = tables::META.open(&self.pins, Access::ReadWrite)?;
        let row = meta.get(&0)?.unwrap_or_default();
        Ok(meta.put(&0, &osmia_maps::layout::Meta { catalogue: catalogue.generation, ..row })?)
    }
}

/// What is asked; `None`: a fragment, of which no person asks.
fn traffic(question: &Question) -> Option<(u8, u16)> {
    match question.carried {
        Carried::To(protocol, port) => Some((number(protocol), port)),
        Carried::Echo => Some((if question.from.address.is_ipv4() { 1 } else { 58 }, 0)),
        Carried::Loose(_) => None,
    }
}

//! The catalogue: what the numbers in the policy maps stand for. A file of JSON lines in the agent's run folder, which like the maps is gone
//! after a reboot.
//!
//! Invariant: a name is in the file before the row that uses it is in a map, so that whoever reads rows first and the file afterwards finds
//! every name. Only the agent writes: it appends, and at its start, and when most of it is history, replaces the file by a shorter one that
//! says the same. A last line that is not whole was never followed by rows.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// A NetworkPolicy by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PolicyName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, empty where a manifest has none.
    pub uid: String,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod by name; both empty: the name was lost, and the endpoint is isolated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            return f.write_str("(unknown)");
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A direction of an endpoint's rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// What the endpoint receives.
    Ingress,
    /// What the endpoint sends.
    Egress,
}

/// What a cookie stands for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A rule that allows.
    Rule {
        /// Its policy.
        policy: PolicyName,
        /// Which list of it.
        direction: Direction,
        /// Index in that list.
        rule: usize,
        /// The rule in words.
        text: String,
    },
    /// Isolation by these policies, none of whose rules allows.
    Isolated {
        /// Direction.
        direction: Direction,
        /// The policies.
        policies: Vec<PolicyName>,
    },
    /// Isolation by these policies, whose rules need more rows than there is room for: none of them is in force.
    OverBudget {
        /// Direction.
        direction: Direction,
        /// The policies.
        policies: Vec<PolicyName>,
    },
    /// The endpoint's Pod has not been told yet, and a policy may select it.
    Provisional {
        /// Direction.
        direction: Direction,
    },
    /// The endpoint's rules were being written that moment.
    Changing,
}

/// Ports of a protocol, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Ports {
    /// IANA protocol number.
    pub protocol: u8,
    /// First.
    pub first: u16,
    /// Last.
    pub last: u16,
}

/// A rule of a rule set, as it was compiled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetRule {
    /// Its cookie.
    pub cookie: u32,
    /// The atoms it speaks of; `None`: anybody.
    pub peers: Option<Vec<u32>>,
    /// Its traffic; `None`: all.
    pub ports: Option<Vec<Ports>>,
    /// Atoms with a named port, and the protocol: their traffic is what the class' signature says of the atom.
    pub named: Vec<(u32, u8)>,
}

/// A line of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A peer of rules.
    Atom {
        /// Its number.
        number: u32,
        /// In words.
        text: String,
        /// What the agent finds it by at its next start.
        definition: serde_json::Value,
    },
    /// Addresses that all atoms treat alike.
    Class {
        /// Its number.
        number: u32,
        /// The atoms that speak of it, each with 0 or the port that its pods call by the atom's name; sorted.
        signature: Vec<(u32, u16)>,
    },
    /// What one direction of endpoints is held to.
    Set {
        /// Its number.
        number: u32,
        /// Direction.
        direction: Direction,
        /// The policies that isolate.
        policies: Vec<PolicyName>,
        /// Cookie of what no rule allows.
        isolation: u32,
        /// Its rules.
        rules: Vec<SetRule>,
        /// What the agent finds it by at its next start.
        definition: serde_json::Value,
    },
    /// The name of a cookie.
    Cookie {
        /// The cookie.
        cookie: u32,
        /// What it stands for.
        reason: Reason,
    },
    /// The pod of an endpoint of this node; written before the endpoint's row.
    Endpoint {
        /// Its slot.
        slot: u32,
        /// The pod; `None`: the runtime named none, and no policy is asked.
        pod: Option<PodName>,
    },
    /// A slot has no endpoint any more; written after its row is gone.
    NoEndpoint {
        /// The slot.
        slot: u32,
    },
    /// There is no such policy any more, and no row of it.
    NoPolicy {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// No row has these any more.
    Gone {
        /// Atoms.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        atoms: Vec<u32>,
        /// Classes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        classes: Vec<u32>,
        /// Rule sets.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sets: Vec<u32>,
        /// Cookies.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        cookies: Vec<u32>,
    },
    /// The rows that the lines before it name are written after it.
    Generation {
        /// Rises with each.
        generation: u64,
        /// Numbers up to these were given.
        last: Last,
    },
    /// That generation is in the maps.
    InForce {
        /// Which.
        generation: u64,
        /// Since when, milliseconds since 1970.
        at_ms: u64,
        /// From the event to the last write, microseconds.
        took_us: u64,
        /// The policies that came or changed with it; empty where only pods or namespaces did. Of one that went a [`Line::NoPolicy`] follows.
        policies: Vec<PolicyName>,
    },
}

/// The highest numbers that were given: none is given twice within a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Last {
    /// Of atoms.
    pub atom: u32,
    /// Of classes.
    pub class: u32,
    /// Of rule sets.
    pub set: u32,
    /// Of cookies.
    pub cookie: u32,
}

/// A rule set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// Direction.
    pub direction: Direction,
    /// The policies that isolate.
    pub policies: Vec<PolicyName>,
    /// Cookie of what no rule allows.
    pub isolation: u32,
    /// Its rules.
    pub rules: Vec<SetRule>,
    /// What the agent finds it by.
    pub definition: serde_json::Value,
}

/// When a generation was in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InForce {
    /// Which.
    pub generation: u64,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// From the event to the last write, microseconds.
    pub took_us: u64,
}

/// What the lines of a file add up to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Catalogue {
    /// The last generation whose rows were going to be written.
    pub generation: u64,
    /// The highest numbers given.
    pub last: Last,
    /// Text and definition of atoms.
    pub atoms: BTreeMap<u32, (String, serde_json::Value)>,
    /// Signatures of classes.
    pub classes: BTreeMap<u32, Vec<(u32, u16)>>,
    /// Rule sets.
    pub sets: BTreeMap<u32, Set>,
    /// What cookies stand for.
    pub cookies: BTreeMap<u32, Reason>,
    /// The last generation that is in the maps.
    pub in_force: Option<InForce>,
    /// The policies, each with the generation that brought it as it is.
    pub policies: BTreeMap<PolicyName, InForce>,
    /// Pods by endpoint slot; `None`: the runtime named none.
    pub endpoints: BTreeMap<u32, Option<PodName>>,
}

/// The file in a run folder.
#[must_use]
pub fn path(run: &Path) -> PathBuf {
    run.join("catalogue")
}

impl Catalogue {
    /// Reads a file. Lines that are not whole end it: nothing that follows was used.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        Ok(Self::of(&fs::read(path)?))
    }

    /// What a file's text says; see [`Self::read`].
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let mut catalogue = Self::default();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else { break };
            let Ok(line) = serde_json::from_slice(line) else { break };
            catalogue.take(line);
        }
        catalogue
    }

    /// Takes a line in.
    pub fn take(&mut self, line: Line) {
        match line {
            Line::Atom { number, text, definition } => {
                self.atoms.insert(number, (text, definition));
            }
            Line::Class { number, signature } => {
                self.classes.insert(number, signature);
            }
            Line::Set { number, direction, policies, isolation, rules, definition } => {
                self.sets.insert(number, Set { direction, policies, isolation, rules, definition });
            }
            Line::Cookie { cookie, reason } => {
                self.cookies.insert(cookie, reason);
            }
            Line::Gone { atoms, classes, sets, cookies } => {
                forget(&mut self.atoms, &atoms);
                forget(&mut self.classes, &classes);
                forget(&mut self.sets, &sets);
                forget(&mut self.cookies, &cookies);
            }
            Line::Generation { generation, last } => {
                self.generation = generation;
                self.last = last;
            }
            Line::InForce { generation, at_ms, took_us, policies } => {
                let in_force = InForce { generation, at_ms, took_us };
                self.in_force = Some(in_force);
                for policy in policies {
                    // Another uid is a policy that took the name of one that went.
                    self.forget_policy(&policy.namespace, &policy.name);
                    self.policies.insert(policy, in_force);
                }
            }
            Line::Endpoint { slot, pod } => {
                self.endpoints.insert(slot, pod);
            }
            Line::NoEndpoint { slot } => {
                self.endpoints.remove(&slot);
            }
            Line::NoPolicy { namespace, name } => self.forget_policy(&namespace, &name),
        }
    }

    fn forget_policy(&mut self, namespace: &str, name: &str) {
        let first = PolicyName { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
        let same = |policy: &&PolicyName| policy.namespace == namespace && policy.name == name;
        let named: Vec<PolicyName> =
            self.policies.range(first..).map(|(policy, _)| policy).take_while(same).cloned().collect();
        for policy in named {
            self.policies.remove(&policy);
        }
    }

    /// The shortest lines that say the same.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let Self { generation, last, atoms, classes, sets, cookies, in_force, policies, endpoints } = self;
        let atoms = atoms.iter().map(|(number, (text, definition))| Line::Atom {
            number: *number,
            text: text.clone(),
            definition: definition.clone(),
        });
        let classes =
            classes.iter().map(|(number, signature)| Line::Class { number: *number, signature: signature.clone() });
        let sets = sets.iter().map(|(number, set)| Line::Set {
            number: *number,
            direction: set.direction,
            policies: set.policies.clone(),
            isolation: set.isolation,
            rules: set.rules.clone(),
            definition: set.definition.clone(),
        });
        let cookies = cookies.iter().map(|(cookie, reason)| Line::Cookie { cookie: *cookie, reason: reason.clone() });
        let in_force_line = |at: &InForce, policies| Line::InForce {
            generation: at.generation,
            at_ms: at.at_ms,
            took_us: at.took_us,
            policies,
        };
        let policies = policies.iter().map(|(policy, at)| in_force_line(at, vec![policy.clone()]));
        let at_last = in_force.iter().map(|at| in_force_line(at, Vec::new()));
        let endpoints = endpoints.iter().map(|(slot, pod)| Line::Endpoint { slot: *slot, pod: pod.clone() });
        let mut lines: Vec<Line> = endpoints.chain(atoms).chain(classes).chain(sets).chain(cookies).collect();
        lines.push(Line::Generation { generation: *generation, last: *last });
        lines.extend(policies.chain(at_last));
        lines
    }
}

fn forget<T>(named: &mut BTreeMap<u32, T>, gone: &[u32]) {
    for number in gone {
        named.remove(number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn example() -> Catalogue {
        let policy = |name: &str| PolicyName { namespace: "a".into(), name: name.into(), uid: "u".into() };
        let direction = Direction::Ingress;
        let rule = SetRule { cookie: 3, peers: Some(vec![1]), ports: None, named: vec![(2, 6)] };
        let lines = [
            Line::Atom { number: 1, text: "pods app=a".into(), definition: serde_json::json!({"x": 1}) },
            Line::Class { number: 4, signature: vec![(1, 0), (2, 80)] },
            Line::Set {
                number: 5,
                direction,
                policies: vec![policy("p")],
                isolation: 2,
                rules: vec![rule],
                definition: serde_json::Value::Null,
            },
            Line::Cookie { cookie: 2, reason: Reason::Isolated { direction, policies: vec![policy("p")] } },
            Line::Cookie {
                cookie: 3,
                reason: Reason::Rule { policy: policy("p"), direction, rule: 0, text: "from pods app=a".into() },
            },
            Line::Generation { generation: 7, last: Last { atom: 2, class: 4, set: 5, cookie: 3 } },
            Line::InForce { generation: 7, at_ms: 1000, took_us: 250, policies: vec![policy("p"), policy("q")] },
            Line::InForce { generation: 8, at_ms: 2000, took_us: 50, policies: vec![] },
            Line::Endpoint { slot: 1, pod: Some(PodName { namespace: "a".into(), name: "web-0".into() }) },
            Line::Endpoint { slot: 2, pod: None },
        ];
        let mut catalogue = Catalogue::default();
        lines.into_iter().for_each(|line| catalogue.take(line));
        catalogue
    }

    #[test]
    fn the_shortest_lines_say_the_same() {
        let catalogue = example();
        let mut again = Catalogue::default();
        for line in catalogue.lines() {
            let text = serde_json::to_vec(&line).unwrap();
            again.take(serde_json::from_slice(&text).unwrap());
        }
        assert_eq!(again, catalogue);
    }

    #[test]
    fn a_policy_made_anew_takes_the_place_of_the_one_of_its_name() {
        let mut catalogue = example();
        let anew = PolicyName { namespace: "a".into(), name: "p".into(), uid: "v".into() };
        catalogue.take(Line::InForce { generation: 9, at_ms: 3000, took_us: 1, policies: vec![anew.clone()] });
        assert_eq!(catalogue.policies.len(), 2);
        assert_eq!(catalogue.policies[&anew].generation, 9);
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let file = std::env::temp_dir().join(format!("osm-catalogue-{}", std::process::id()));
        let mut text = Vec::new();
        for line in example().lines() {
            text.extend(serde_json::to_vec(&line).unwrap());
            text.push(b'\n');
        }
        let whole = text.len();
        for torn in [&b"{\"gone\":{\"cookies\":[2]}}"[..], b"{\"gone\":{\"coo"] {
            text.truncate(whole);
            text.extend(torn);
            fs::write(&file, &text).unwrap();
            assert_eq!(Catalogue::read(&file).unwrap(), example());
        }
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn forgetting_takes_no_longer_than_learning() {
        let many = 40_000;
        let mut catalogue = Catalogue::default();
        let begin = Instant::now();
        for number in 1..=many {
            catalogue.take(Line::Class { number, signature: vec![(number, 0)] });
        }
        let learnt = begin.elapsed();
        let begin = Instant::now();
        catalogue.take(Line::Gone { atoms: vec![], classes: (1..=many).collect(), sets: vec![], cookies: vec![] });
        assert!(catalogue.classes.is_empty());
        let forgot = begin.elapsed();
        // Of the square of their number it would be hundreds of times as long.
        assert!(forgot < 20 * learnt, "{forgot:?} for what was learnt in {learnt:?}");
    }

    #[test]
    fn what_no_row_has_any_more_is_forgotten() {
        let mut catalogue = example();
        catalogue.take(Line::Gone { atoms: vec![1], classes: vec![4], sets: vec![5], cookies: vec![2] });
        assert!(catalogue.atoms.is_empty() && catalogue.classes.is_empty() && catalogue.sets.is_empty());
        assert_eq!(catalogue.cookies.len(), 1);
        catalogue.take(Line::NoEndpoint { slot: 1 });
        assert_eq!(catalogue.endpoints.keys().collect::<Vec<_>>(), [&2]);
        catalogue.take(Line::NoPolicy { namespace: "a".into(), name: "q".into() });
        assert_eq!(catalogue.policies.keys().map(|policy| policy.name.as_str()).collect::<Vec<_>>(), ["p"]);
        assert_eq!(catalogue.last, Last { atom: 2, class: 4, set: 5, cookie: 3 }, "numbers are never given again");
    }
}

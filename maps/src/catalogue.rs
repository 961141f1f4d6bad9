//! The catalogue: what the numbers in the policy maps stand for. A file of JSON lines in the agent's run folder, which like the maps is gone
//! after a reboot.
//!
//! Invariant: a name is in the file before the row that uses it is in a map, so that whoever reads rows first and the file afterwards finds
//! every name. Only the agent writes: it appends, and at its start, and when most of it is history, replaces the file by a shorter one that
//! says the same. A last line that is not whole was never followed by rows.

mod index;
mod line;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

pub use self::index::{Index, SetHead};
pub use self::line::{CrowdedOut, Direction, Last, Line, PodName, PolicyName, Ports, Reason, SetRule};

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

/// Something of what was told is not in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Behind {
    /// Since when, milliseconds since 1970.
    pub at_ms: u64,
    /// What refused it.
    pub why: String,
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
    /// What the API would refuse of policies, where it would.
    pub refused: BTreeMap<PolicyName, Vec<String>>,
    /// Something that was told is not in force; `None`: as far as the agent knows all is, if no generation is on its way.
    pub behind: Option<Behind>,
    /// Addresses that rules speak of and that have no room.
    pub crowded_out: Option<CrowdedOut>,
    /// What the source cannot ask for or read.
    pub source: Vec<String>,
    /// Pods by endpoint slot; `None`: the runtime named none.
    pub endpoints: BTreeMap<u32, Option<PodName>>,
}

/// The file in a run folder.
#[must_use]
pub fn path(run: &Path) -> PathBuf {
    run.join("catalogue")
}

/// Whether the file can grow: a full run folder keeps every change of policy from being written.
///
/// # Errors
/// The folder cannot be looked at.
pub fn has_room(run: &Path) -> std::io::Result<bool> {
    let size = rustix::fs::statvfs(run)?;
    // A file system in memory without a limit has no blocks at all.
    Ok(size.f_blocks == 0 || size.f_bavail > 0)
}

impl Catalogue {
    /// Reads a file. Lines that are not whole end it: nothing that follows was used. One of a kind that this build does not know is left out:
    /// a newer agent wrote it.
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
            match serde_json::from_slice(line) {
                Ok(line) => catalogue.take(line),
                Err(_) if serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok() => {}
                Err(_) => break,
            }
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
            Line::Refused { policy, parts } => {
                self.refused.insert(policy, parts);
            }
            Line::Behind { at_ms, why } => self.behind = Some(Behind { at_ms, why }),
            Line::CaughtUp => self.behind = None,
            Line::CrowdedOut { now } => self.crowded_out = now,
            Line::Source { problems } => self.source = problems,
        }
    }

    fn forget_policy(&mut self, namespace: &str, name: &str) {
        let first = PolicyName { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
        let same = |policy: &&PolicyName| policy.namespace == namespace && policy.name == name;
        let named: Vec<PolicyName> =
            self.policies.range(first..).map(|(policy, _)| policy).take_while(same).cloned().collect();
        for policy in named {
            self.policies.remove(&policy);
            self.refused.remove(&policy);
        }
    }

    /// The shortest lines that say the same; each is made when it is asked for.
    pub fn lines(&self) -> impl Iterator<Item = Line> {
        let Self {
            generation,
            last,
            atoms,
            classes,
            sets,
            cookies,
            in_force,
            policies,
            refused,
            behind,
            crowded_out,
            source,
            endpoints,
        } = self;
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
        let policies = policies.iter().map(move |(policy, at)| in_force_line(at, vec![policy.clone()]));
        let at_last = in_force.iter().map(move |at| in_force_line(at, Vec::new()));
        let endpoints = endpoints.iter().map(|(slot, pod)| Line::Endpoint { slot: *slot, pod: pod.clone() });
        let names = endpoints.chain(atoms).chain(classes).chain(sets).chain(cookies);
        let generation = std::iter::once(Line::Generation { generation: *generation, last: *last });
        let refused =
            refused.iter().map(|(policy, parts)| Line::Refused { policy: policy.clone(), parts: parts.clone() });
        let behind = behind.iter().map(|Behind { at_ms, why }| Line::Behind { at_ms: *at_ms, why: why.clone() });
        let crowded_out = crowded_out.iter().map(|now| Line::CrowdedOut { now: Some(*now) });
        let source = Some(source).filter(|problems| !problems.is_empty());
        let source = source.map(|problems| Line::Source { problems: problems.clone() });
        names
            .chain(generation)
            .chain(policies)
            .chain(at_last)
            .chain(refused)
            .chain(behind)
            .chain(crowded_out)
            .chain(source)
    }
}

fn forget<T>(named: &mut BTreeMap<u32, T>, gone: &[u32]) {
    for number in gone {
        named.remove(number);
    }
}

#[cfg(test)]
mod tests;

//! The catalogue for who asks for few of its names: half a million rules are a file of 200 MB, of which one question needs some lines.
//!
//! Invariant: says the same as [`Catalogue::read`]. Of lines that name a number only the number is read, until somebody asks for it; they are
//! recognised as serde writes them, and what looks otherwise is read whole.

use std::{cell::OnceCell, collections::BTreeMap, fmt, fs, io::BufRead as _, ops::Range, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor},
};

use super::{Catalogue, Direction, Line, PolicyName, Reason, SetRule};

/// A rule set but for its rules.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct SetHead {
    /// Direction.
    pub direction: Direction,
    /// The policies that isolate.
    pub policies: Vec<PolicyName>,
    /// Cookie of what no rule allows.
    pub isolation: u32,
    /// How many rules it has.
    #[serde(rename = "rules", deserialize_with = "count")]
    pub len: usize,
}

#[derive(Deserialize)]
struct AtomText {
    text: String,
}

#[derive(Deserialize)]
struct ClassSignature {
    signature: Vec<(u32, u16)>,
}

#[derive(Deserialize)]
struct SetRules {
    rules: Vec<SetRule>,
}

#[derive(Deserialize)]
struct CookieReason {
    reason: Reason,
}

/// A line that was found, and what it says once somebody asked.
#[derive(Debug)]
struct Entry<T> {
    line: Range<usize>,
    says: OnceCell<Option<Box<T>>>,
}

type Entries<T> = BTreeMap<u32, Entry<T>>;

/// The lines of a file by what they name.
#[derive(Default)]
pub struct Index {
    text: Vec<u8>,
    atoms: Entries<String>,
    classes: Entries<Vec<(u32, u16)>>,
    sets: Entries<SetHead>,
    cookies: Entries<Reason>,
    /// Everything else.
    rest: Catalogue,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("bytes", &self.text.len()).field("rest", &self.rest).finish_non_exhaustive()
    }
}

impl Index {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        Ok(Self::of(fs::read(path)?))
    }

    /// What a file's text says.
    #[must_use]
    pub fn of(text: Vec<u8>) -> Self {
        let mut index = Self::default();
        let mut begin = 0;
        // Reading from memory never fails.
        while let Some(length) = text.get(begin..).and_then(|mut rest| rest.skip_until(b'\n').ok()) {
            let end = begin + length;
            let Some(line) = text.get(begin..end).and_then(|line| line.strip_suffix(b"\n")) else { break };
            if !index.take(line, begin..end) {
                break;
            }
            begin = end;
        }
        index.text = text;
        index
    }

    /// Whether the line is whole.
    fn take(&mut self, line: &[u8], place: Range<usize>) -> bool {
        let place = || place.clone();
        if line.ends_with(b"}}") {
            if let Some(number) = number(line, br#"{"atom":{"number":"#) {
                put(&mut self.atoms, number, place());
                return true;
            }
            if let Some(number) = number(line, br#"{"class":{"number":"#) {
                put(&mut self.classes, number, place());
                return true;
            }
            if let Some(number) = number(line, br#"{"set":{"number":"#) {
                put(&mut self.sets, number, place());
                return true;
            }
            if let Some(number) = number(line, br#"{"cookie":{"cookie":"#) {
                put(&mut self.cookies, number, place());
                return true;
            }
        }
        match serde_json::from_slice(line) {
            Ok(Line::Atom { number, .. }) => put(&mut self.atoms, number, place()),
            Ok(Line::Class { number, .. }) => put(&mut self.classes, number, place()),
            Ok(Line::Set { number, .. }) => put(&mut self.sets, number, place()),
            Ok(Line::Cookie { cookie, .. }) => put(&mut self.cookies, cookie, place()),
            Ok(Line::Gone { atoms, classes, sets, cookies }) => {
                atoms.iter().for_each(|number| _ = self.atoms.remove(number));
                classes.iter().for_each(|number| _ = self.classes.remove(number));
                sets.iter().for_each(|number| _ = self.sets.remove(number));
                cookies.iter().for_each(|number| _ = self.cookies.remove(number));
            }
            Ok(line) => self.rest.take(line),
            Err(_) => return serde_json::from_slice::<IgnoredAny>(line).is_ok(),
        }
        true
    }

    /// Everything but atoms, classes, sets and cookies, of which it has none.
    #[must_use]
    pub fn rest(&self) -> &Catalogue {
        &self.rest
    }

    /// An atom in words.
    #[must_use]
    pub fn atom(&self, number: u32) -> Option<&str> {
        self.ask(&self.atoms, number, |AtomText { text }| text).map(String::as_str)
    }

    /// The signature of a class.
    #[must_use]
    pub fn class(&self, number: u32) -> Option<&[(u32, u16)]> {
        self.ask(&self.classes, number, |ClassSignature { signature }| signature).map(Vec::as_slice)
    }

    /// The numbers of all classes.
    pub fn classes(&self) -> impl Iterator<Item = u32> {
        self.classes.keys().copied()
    }

    /// A rule set.
    #[must_use]
    pub fn set(&self, number: u32) -> Option<&SetHead> {
        self.ask(&self.sets, number, |head: SetHead| head)
    }

    /// The rules of a set; read anew each time.
    #[must_use]
    pub fn rules(&self, set: u32) -> Option<Vec<SetRule>> {
        let entry = self.sets.get(&set)?;
        self.parse(&entry.line).map(|SetRules { rules }| rules)
    }

    /// The numbers of all rule sets.
    pub fn sets(&self) -> impl Iterator<Item = u32> {
        self.sets.keys().copied()
    }

    /// What a cookie stands for.
    #[must_use]
    pub fn reason(&self, cookie: u32) -> Option<&Reason> {
        self.ask(&self.cookies, cookie, |CookieReason { reason }| reason)
    }

    fn ask<'a, T, W: DeserializeOwned>(
        &'a self,
        entries: &'a Entries<T>,
        number: u32,
        says: impl FnOnce(W) -> T,
    ) -> Option<&'a T> {
        let entry = entries.get(&number)?;
        entry.says.get_or_init(|| self.parse(&entry.line).map(says).map(Box::new)).as_deref()
    }

    /// What stands inside a line's one member.
    fn parse<W: DeserializeOwned>(&self, line: &Range<usize>) -> Option<W> {
        let line = self.text.get(line.clone())?;
        let of: BTreeMap<String, W> = serde_json::from_slice(line).ok()?;
        of.into_values().next()
    }
}

fn put<T>(entries: &mut Entries<T>, number: u32, line: Range<usize>) {
    entries.insert(number, Entry { line, says: OnceCell::new() });
}

/// The number behind the beginning of a line.
fn number(line: &[u8], beginning: &[u8]) -> Option<u32> {
    let rest = line.strip_prefix(beginning)?;
    let digits = rest.split(|byte| *byte == b',').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The length of a list.
fn count<'de, D: Deserializer<'de>>(list: D) -> Result<usize, D::Error> {
    struct Count;
    impl<'de> Visitor<'de> for Count {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
            let mut length = 0;
            while list.next_element::<IgnoredAny>()?.is_some() {
                length += 1;
            }
            Ok(length)
        }
    }
    list.deserialize_seq(Count)
}

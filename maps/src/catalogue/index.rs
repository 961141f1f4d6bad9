//! The catalogue for who asks for few of its names: half a million rules are a file of 220 MB, of which one question needs some lines.
//!
//! Invariant: says the same as [`Catalogue::read`]. Of lines that name a number only the number and the place are kept; they are recognised
//! as serde writes them, and what looks otherwise is read whole. What a line says is read from the file when somebody asks: whatever became of
//! its name, the file is the one that was opened, and a line in whose place another one stands by then counts as none.

mod file;
mod lines;

use std::{
    cell::{OnceCell, RefCell},
    fmt,
    fs::File,
    io::{self, Write},
    path::Path,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor},
};

use self::{
    file::{Place, Window},
    lines::Lines,
};
use super::{Catalogue, Direction, Line, PolicyName, Reason, SetRule};

/// A rule set but for its rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetHead {
    /// Direction.
    pub direction: Direction,
    /// The policies that isolate.
    pub policies: Vec<PolicyName>,
    /// Cookie of what no rule allows.
    pub isolation: u32,
    /// How many rules it has.
    pub len: usize,
}

/// What is read of the line of an atom.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OfAtom {
    Atom { number: u32, text: String },
}

/// What is read of the line of a class.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OfClass {
    Class { number: u32, signature: Vec<(u32, u16)> },
}

/// What is read of the line of a rule set, but for its rules.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum HeadOfSet {
    Set {
        number: u32,
        direction: Direction,
        policies: Vec<PolicyName>,
        isolation: u32,
        #[serde(rename = "rules", deserialize_with = "count")]
        len: usize,
    },
}

/// The rules in the line of a rule set.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RulesOfSet {
    Set { number: u32, rules: Vec<SetRule> },
}

/// What is read of the line of a cookie.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OfCookie {
    Cookie { cookie: u32, reason: Reason },
}

/// Lines of one kind, and the part of the file that the last of them was read from.
#[derive(Default)]
struct Kind {
    lines: Lines,
    window: RefCell<Window>,
}

/// What was read of lines stays, by their position.
type Said<T> = Vec<OnceCell<Box<T>>>;

/// The lines of a file by what they name.
#[derive(Default)]
pub struct Index {
    file: Option<File>,
    atoms: Kind,
    classes: Kind,
    sets: Kind,
    cookies: Kind,
    heads: Said<SetHead>,
    reasons: Said<Reason>,
    /// Everything else.
    rest: Catalogue,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("file", &self.file).field("rest", &self.rest).finish_non_exhaustive()
    }
}

impl Index {
    /// Looks through a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::of(File::open(path)?, u64::MAX)
    }

    /// Looks through the beginning of an open file, up to so many bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(file: File, length: u64) -> io::Result<Self> {
        let mut index = Self::default();
        file::each_line(&file, length, |line, place| index.take(line, place))?;
        for kind in [&mut index.atoms, &mut index.classes, &mut index.sets, &mut index.cookies] {
            kind.lines.end();
        }
        index.heads.resize_with(index.sets.lines.len(), OnceCell::new);
        index.reasons.resize_with(index.cookies.lines.len(), OnceCell::new);
        index.file = Some(file);
        Ok(index)
    }

    /// Whether the line is whole.
    fn take(&mut self, line: &[u8], place: Place) -> bool {
        let Self { atoms, classes, sets, cookies, .. } = self;
        if line.ends_with(b"}}") {
            let kinds: [(&[u8], &mut Kind); 4] = [
                (br#"{"atom":{"number":"#, &mut *atoms),
                (br#"{"cookie":{"cookie":"#, &mut *cookies),
                (br#"{"class":{"number":"#, &mut *classes),
                (br#"{"set":{"number":"#, &mut *sets),
            ];
            for (beginning, kind) in kinds {
                if let Some(number) = line.strip_prefix(beginning).and_then(number) {
                    kind.lines.put(number, place);
                    return true;
                }
            }
        }
        match serde_json::from_slice(line) {
            Ok(Line::Atom { number, .. }) => atoms.lines.put(number, place),
            Ok(Line::Class { number, .. }) => classes.lines.put(number, place),
            Ok(Line::Set { number, .. }) => sets.lines.put(number, place),
            Ok(Line::Cookie { cookie, .. }) => cookies.lines.put(cookie, place),
            Ok(Line::Gone { atoms: of_atoms, classes: of_classes, sets: of_sets, cookies: of_cookies }) => {
                atoms.lines.forget(&of_atoms);
                classes.lines.forget(&of_classes);
                sets.lines.forget(&of_sets);
                cookies.lines.forget(&of_cookies);
            }
            Ok(line) => self.rest.take(line),
            Err(_) => return serde_json::from_slice::<IgnoredAny>(line).is_ok(),
        }
        true
    }

    /// Writes the shortest lines that say the same: those of numbers as they stand in the file.
    ///
    /// # Errors
    /// It cannot be read any more or not be written, or a line that counts is damaged.
    pub fn write_shortest(&self, out: &mut dyn Write) -> io::Result<()> {
        let damaged = || io::Error::other("a line of the catalogue is damaged, or not as it was read");
        // First what every reader needs: one that meets a damaged line reads no further.
        for line in self.rest.lines() {
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        for kind in [&self.atoms, &self.classes, &self.sets, &self.cookies] {
            let mut window = kind.window.borrow_mut();
            for place in (0..kind.lines.len()).filter_map(|position| kind.lines.place(position)) {
                let line = self.file.as_ref().and_then(|file| window.line(file, place));
                let line =
                    line.filter(|line| serde_json::from_slice::<IgnoredAny>(line).is_ok()).ok_or_else(damaged)?;
                out.write_all(line)?;
                out.write_all(b"\n")?;
            }
        }
        Ok(())
    }

    /// Everything but atoms, classes, sets and cookies, of which it has none.
    #[must_use]
    pub fn rest(&self) -> &Catalogue {
        &self.rest
    }

    /// An atom in words.
    #[must_use]
    pub fn atom(&self, number: u32) -> Option<String> {
        self.ask(&self.atoms, number, |OfAtom::Atom { number, text }| (number, text))
    }

    /// The signature of a class.
    #[must_use]
    pub fn class(&self, number: u32) -> Option<Vec<(u32, u16)>> {
        self.ask(&self.classes, number, |OfClass::Class { number, signature }| (number, signature))
    }

    /// The numbers of all classes, rising.
    pub fn classes(&self) -> impl Iterator<Item = u32> {
        self.classes.lines.numbers()
    }

    /// A rule set.
    #[must_use]
    pub fn set(&self, number: u32) -> Option<&SetHead> {
        let said = self.heads.get(self.sets.lines.position(number)?)?;
        kept(said, || {
            self.ask(&self.sets, number, |HeadOfSet::Set { number, direction, policies, isolation, len }| {
                (number, SetHead { direction, policies, isolation, len })
            })
        })
    }

    /// The rules of a set; read anew each time.
    #[must_use]
    pub fn rules(&self, set: u32) -> Option<Vec<SetRule>> {
        self.ask(&self.sets, set, |RulesOfSet::Set { number, rules }| (number, rules))
    }

    /// The numbers of all rule sets, rising.
    pub fn sets(&self) -> impl Iterator<Item = u32> {
        self.sets.lines.numbers()
    }

    /// What a cookie stands for.
    #[must_use]
    pub fn reason(&self, cookie: u32) -> Option<&Reason> {
        let said = self.reasons.get(self.cookies.lines.position(cookie)?)?;
        kept(said, || self.ask(&self.cookies, cookie, |OfCookie::Cookie { cookie, reason }| (cookie, reason)))
    }

    /// What the line of a number says; `says` tells the number and the rest.
    fn ask<W: DeserializeOwned, T>(&self, kind: &Kind, number: u32, says: impl FnOnce(W) -> (u32, T)) -> Option<T> {
        let place = kind.lines.place(kind.lines.position(number)?)?;
        let mut window = kind.window.borrow_mut();
        let (of, said) = says(serde_json::from_slice(window.line(self.file.as_ref()?, place)?).ok()?);
        (of == number).then_some(said)
    }
}

fn kept<T>(said: &OnceCell<Box<T>>, read: impl FnOnce() -> Option<T>) -> Option<&T> {
    match said.get() {
        Some(said) => Some(said),
        None => {
            let now = Box::new(read()?);
            Some(said.get_or_init(|| now))
        }
    }
}

/// The number that a text begins with, and a comma behind it.
fn number(text: &[u8]) -> Option<u32> {
    let mut number: Option<u32> = None;
    for byte in text {
        match byte {
            b'0'..=b'9' => number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u32::from(byte - b'0'))?),
            b',' => return number,
            _ => return None,
        }
    }
    None
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

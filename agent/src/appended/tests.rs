use tempfile::TempDir;

use super::*;

struct World {
    dir: TempDir,
    file: Appended,
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let file = Appended::open(&dir.path().join("file")).unwrap();
        Self { dir, file }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("file")
    }

    fn append(&mut self, line: &'static str) -> io::Result<()> {
        self.file.append(|out| writeln!(out, "{line}"))
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }
}

/// Writes one line, whatever it is made of.
fn one_line(_: Part, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "all")
}

#[test]
fn what_follows_a_shorter_file_is_in_the_one_that_has_the_name() {
    let mut world = World::new();
    world.append("a").unwrap();
    let old = world.file.whole();
    world.file.make_worth_it();
    assert!(!world.file.shorten(one_line).unwrap(), "a thread writes it");
    world.append("meanwhile").unwrap();
    world.file.wait();
    assert!(world.file.shorten(one_line).unwrap());
    assert!(world.file.has_its_name().unwrap());
    world.append("b").unwrap();
    assert_eq!(world.text(), "all\nmeanwhile\nb\n");
    let mut before = String::new();
    Part { end: u64::MAX, ..old }.read_to_string(&mut before).unwrap();
    assert_eq!(before, "a\nmeanwhile\n", "nothing goes to the file that has no name");
}

#[test]
fn what_cannot_be_put_in_its_place_leaves_it_as_it_is_and_nothing_beside_it() {
    let mut world = World::new();
    world.append("a").unwrap();
    fs::remove_file(world.path()).unwrap();
    fs::create_dir(world.path()).unwrap();
    assert!(world.file.shorten_now(one_line).is_err());
    assert_eq!(fs::read_dir(world.dir.path()).unwrap().count(), 1);
    fs::remove_dir(world.path()).unwrap();
    assert!(!world.file.has_its_name().unwrap());
    let mut there = String::new();
    world.file.whole().read_to_string(&mut there).unwrap();
    assert_eq!(there, "a\n");
}

#[test]
fn what_was_torn_and_could_not_be_taken_away_takes_no_line_with_it() {
    let mut world = World::new();
    world.append("a").unwrap();
    // A disk that took a part of it, and then not even a shorter length.
    (&*world.file.file).write_all(b"b\nc").unwrap();
    world.file.torn = true;
    world.file.refuse(true);
    assert!(world.append("d").is_err());
    world.file.refuse(false);
    world.append("e").unwrap();
    assert_eq!(world.text(), "a\ne\n");
}

#[test]
fn lines_that_cannot_be_written_to_the_end_leave_nothing() {
    let mut world = World::new();
    world.append("a").unwrap();
    let failed = world.file.append(|out| {
        out.write_all(&[b'b'; 3 * PIECE])?;
        Err(io::Error::other("no more"))
    });
    assert!(failed.is_err());
    assert_eq!(world.text(), "a\n");
}

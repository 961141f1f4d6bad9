//! The catalogue's file, read once from its beginning to its end and then line by line.
//!
//! Invariant: of the text no more is kept than a piece, or a line that is longer: the file of as many rules as a node takes has 220 MB.

use std::{
    fs::File,
    io::{self, BufRead as _},
    os::unix::fs::FileExt as _,
};

/// Bytes that are read at a time: few enough to stay in a processor's own memory until their lines are found.
const PIECE: usize = 256 << 10;
/// Bytes that are read with a line: whoever asks for one often asks for the next.
const AROUND: usize = 64 << 10;

/// Where a line is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) at: u64,
    /// Bytes without the newline.
    pub(super) length: u32,
}

/// Hands over each line of so many bytes that ends, without its newline, until `each` says that it is not whole.
pub(super) fn each_line(file: &File, length: u64, mut each: impl FnMut(&[u8], Place) -> bool) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    // Where the piece begins in the file, and how much of it was read.
    let (mut at, mut filled) = (0_u64, 0);
    loop {
        if filled == piece.len() {
            piece.resize(2 * filled, 0);
        }
        let next = at + filled as u64;
        let room = piece.get_mut(filled..).unwrap_or_default();
        let wanted = usize::try_from(length.saturating_sub(next)).unwrap_or(usize::MAX).min(room.len());
        let read = match file.read_at(room.get_mut(..wanted).unwrap_or_default(), next) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        // What was there before has no newline.
        let mut searched = filled;
        filled += read;
        let mut begin = 0;
        while let Some(length) = to_newline(piece.get(searched..filled).unwrap_or_default()) {
            let line = piece.get(begin..searched + length).unwrap_or_default();
            let place = Place { at: at + begin as u64, length: u32::try_from(line.len()).unwrap_or(u32::MAX) };
            if !each(line, place) {
                return Ok(());
            }
            begin = searched + length + 1;
            searched = begin;
        }
        piece.copy_within(begin..filled, 0);
        filled -= begin;
        at += begin as u64;
    }
}

/// Bytes before the first newline.
fn to_newline(mut text: &[u8]) -> Option<usize> {
    let whole = text;
    // Reading from memory never fails.
    let length = text.skip_until(b'\n').ok()?;
    whole.get(..length)?.ends_with(b"\n").then(|| length - 1)
}

/// A part of the file.
#[derive(Debug, Default)]
pub(super) struct Window {
    at: u64,
    filled: usize,
    bytes: Vec<u8>,
}

impl Window {
    /// What stands at a place; `None`: not so much any more.
    pub(super) fn line(&mut self, file: &File, place: Place) -> Option<&[u8]> {
        let length = place.length as usize;
        let is_in = place.at >= self.at && place.at + u64::from(place.length) <= self.at + self.filled as u64;
        if !is_in {
            self.move_to(file, place.at, length.max(AROUND)).ok()?;
        }
        let begin = usize::try_from(place.at - self.at).ok()?;
        self.bytes.get(..self.filled)?.get(begin..begin + length)
    }

    fn move_to(&mut self, file: &File, at: u64, length: usize) -> io::Result<()> {
        (self.at, self.filled) = (at, 0);
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
        while let Some(rest) = self.bytes.get_mut(self.filled..length).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, at + self.filled as u64) {
                Ok(0) => break,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

//! The twin of the object under test that every verifier must refuse: the proof that the matrix can fail.

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// Opcode of `rX = 64 bits`, which takes two places. The loader writes the number of a map into it: it must stay what it is.
const LOAD_64: u8 = 0x18;
/// Opcode of `rX = rY`; the registers are in the next byte, Y in its upper half.
const MOVE: u8 = 0xbf;

/// Writes `r0 = rX` over a program's first instruction that is no [`LOAD_64`], with an X that nothing has written, which each verifier refuses
/// with "RX !read_ok".
fn damage(program: &mut [u8]) -> Option<()> {
    let mut at = 0;
    let mut written = Vec::new();
    while *program.get(at)? == LOAD_64 {
        written.push(*program.get(at + 1)? & 0xf);
        at += 16;
    }
    // At its start a program has r1 and r10.
    let unwritten = (2..10_u8).rev().find(|register| !written.contains(register))?;
    program.get_mut(at..at + 8)?.copy_from_slice(&[MOVE, unwritten << 4, 0, 0, 0, 0, 0, 0]);
    Some(())
}

/// A copy of a BPF object, each of whose programs begins with a read of a register that holds nothing.
pub(crate) fn refused(bytes: &[u8]) -> Result<Vec<u8>> {
    let file = object::File::parse(bytes).context("parse the object")?;
    let mut damaged = bytes.to_vec();
    let mut programs = 0;
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition()) {
        let section = file.section_by_index(symbol.section_index().context("a program outside all sections")?)?;
        // `.text` holds the functions that programs call.
        if section.name()? == ".text" {
            continue;
        }
        let (start, _) = section.file_range().context("a program that is not in the file")?;
        // Symbols of an object that is not linked count from their section.
        let start = usize::try_from(start + symbol.address())?;
        damaged.get_mut(start..).and_then(damage).context("a program that ends before it begins")?;
        programs += 1;
    }
    ensure!(programs > 0, "the object has no program");
    Ok(damaged)
}

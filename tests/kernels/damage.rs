//! The twin of the object under test that every verifier must refuse: the proof that the matrix can fail.

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// `r0 = r9` in place of the first instruction: r9 was never written, which each verifier refuses with "R9 !read_ok". Where a
/// two-part instruction stood, it refuses what is left of that.
const READ_NOTHING: [u8; 8] = [0xbf, 0x90, 0, 0, 0, 0, 0, 0];

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
        damaged
            .get_mut(start..start + READ_NOTHING.len())
            .context("a program that ends before it begins")?
            .copy_from_slice(&READ_NOTHING);
        programs += 1;
    }
    ensure!(programs > 0, "the object has no program");
    Ok(damaged)
}

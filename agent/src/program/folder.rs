//! The folder of the pins: made where it is missing, refused where it is not ours to use.

use std::{fs, io, path::Path};

use osmia_maps::{Access, LayoutError, MapError, Pins, is_bpffs, layout::Meta, tables};
use tracing::info;

use super::{OpenError, migrate::Source};

fn wrap<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> OpenError + 'a {
    move |source| OpenError::Folder { what, path: path.to_owned(), source }
}

/// Makes the root of the pins. A bpffs is not mounted from here: in the agent's own mount namespace the pins would go with it.
///
/// # Errors
/// No bpffs, or the kernel's.
pub fn make_root(pins: &Pins) -> Result<(), OpenError> {
    let root = pins.root();
    let there = root.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    if !is_bpffs(there).map_err(wrap("looking at", there))? {
        return Err(LayoutError::NotBpffs { root: root.to_owned() }.into());
    }
    fs::create_dir_all(root).map_err(wrap("creating", root))
}

/// Makes the folders; says where rows and links are to be moved from, if anywhere. Whoever calls is the only one on these pins.
pub(super) fn prepare(pins: &Pins) -> Result<Option<Source>, OpenError> {
    make_root(pins)?;
    let source = Source::find(pins)?;
    let links = pins.links();
    fs::create_dir_all(&links).map_err(wrap("creating", &links))?;
    Ok(source)
}

/// The meta row that is pinned, or that of the folder our maps are filled from; `None` where an agent has never got as far as writing it.
pub(super) fn meta(pins: &Pins, source: Option<&Source>) -> Result<Option<Meta>, OpenError> {
    if let Some(source) = source.filter(|source| source.fill) {
        return Ok(tables::META.open_foreign(&source.pins)?.get(&0)?);
    }
    match tables::META.open(pins, Access::ReadOnly) {
        Err(MapError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(table) if table.get(&0)?.is_none_or(|row| row.magic == [0; 8]) => return Ok(None),
        Ok(_) => {}
    }
    Ok(Some(pins.check()?))
}

/// Removes the jump tables of other starts. Only once every link runs the programs of this one.
pub(super) fn remove_old_jump_tables(pins: &Pins, table: u64) -> Result<(), OpenError> {
    let folder = pins.folder();
    for entry in fs::read_dir(&folder).map_err(wrap("listing", &folder))? {
        let path = entry.map_err(wrap("listing", &folder))?.path();
        let old = path.file_name().and_then(|n| n.to_str()).and_then(Pins::progs_start);
        if old.is_some_and(|old| old != table) {
            fs::remove_file(&path).map_err(wrap("removing", &path))?;
            info!(path = %path.display(), "jump table of the programs before removed");
        }
    }
    Ok(())
}

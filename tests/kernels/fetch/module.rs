//! Kernel modules of an unpacked package: found by name, uncompressed, ordered by what they need.
//!
//! The package carries no `modules.dep` (depmod writes it at installation), so the dependencies are read from the modules' own
//! `.modinfo`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;

/// A module file, uncompressed.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    /// Name as the kernel writes it, with underscores.
    pub(crate) name: String,
    /// The `.ko`.
    pub(crate) path: PathBuf,
}

/// The modules `wanted` and all that they need, each after its needs. Modules that are wanted and not in `tree` are an error.
pub(crate) fn ordered(tree: &Path, wanted: &[&str]) -> Result<Vec<Module>> {
    let mut files = HashMap::new();
    collect(tree, &mut files)?;
    let mut order = Vec::new();
    for name in wanted {
        visit(name, &files, &mut order)?;
    }
    Ok(order)
}

fn visit(name: &str, files: &HashMap<String, PathBuf>, order: &mut Vec<Module>) -> Result<()> {
    if order.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let path = files.get(name).with_context(|| format!("the kernel package has no module {name}"))?;
    let path = uncompressed(path)?;
    let image = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    for needed in needs(&image) {
        visit(&needed, files, order)?;
    }
    order.push(Module { name: name.to_owned(), path });
    Ok(())
}

/// Module name → file, for the whole tree.
fn collect(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), files)?;
        } else if let Some((name, extension)) = entry.file_name().to_string_lossy().split_once('.')
            && extension.starts_with("ko")
        {
            files.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

/// Debian compresses modules since 6.x, and a kernel is not always built to open such a file itself.
fn uncompressed(path: &Path) -> Result<PathBuf> {
    if path.extension().is_some_and(|extension| extension == "xz") {
        run(Command::new("xz").args(["--decompress", "--force"]).arg(path))?;
        return Ok(path.with_extension(""));
    }
    Ok(path.to_owned())
}

/// `.modinfo` is a row of NUL-terminated `key=value`; `depends` is a comma list, empty for none.
fn needs(image: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = image.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = image.get(start + KEY.len()..).unwrap_or_default();
    let value = value.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value)
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::needs;

    #[test]
    fn needs_are_read_from_modinfo() {
        assert_eq!(needs(b"x\0depends=udp_tunnel,ip6-udp_tunnel\0name=vxlan\0"), ["udp_tunnel", "ip6_udp_tunnel"]);
        assert!(needs(b"x\0depends=\0name=veth\0").is_empty());
    }
}

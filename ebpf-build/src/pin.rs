//! The pins in the root manifest, `[workspace.metadata.osmia]`: read by scanning lines, because a TOML parser would be the only
//! dependency of everything that builds.

use std::fs;
use std::path::Path;

use crate::Error;

/// The versions that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// rustup's name of the toolchain of both sides, such as `1.99.1`.
    pub toolchain: String,
    /// Version of bpf-linker, as `bpf-linker --version` says it.
    pub bpf_linker: String,
    /// Version of cargo-deny, for `cargo xtask lint`.
    pub cargo_deny: String,
}

impl Pin {
    /// Reads the pins.
    ///
    /// # Errors
    /// When the manifest of `workspace` cannot be read or lacks one of them.
    pub fn read(workspace: &Path) -> Result<Self, Error> {
        let path = workspace.join("Cargo.toml");
        let text = fs::read_to_string(&path).map_err(|e| Error::new(format!("reading {}: {e}", path.display())))?;
        Self::parse(&text)
            .map_err(|key| Error::new(format!("{} has no `{key}` in [workspace.metadata.osmia]", path.display())))
    }

    /// The error is the key that is missing.
    fn parse(manifest: &str) -> Result<Self, &'static str> {
        let get = |key: &'static str| {
            manifest
                .lines()
                .map(str::trim)
                .skip_while(|l| *l != "[workspace.metadata.osmia]")
                .skip(1)
                .take_while(|l| !l.starts_with('['))
                .filter_map(|l| l.split_once('='))
                .find(|(k, _)| k.trim() == key)
                .and_then(|(_, v)| v.trim().strip_prefix('"')?.split_once('"'))
                .map(|(v, _)| v.to_owned())
                .ok_or(key)
        };
        Ok(Self { toolchain: get("toolchain")?, bpf_linker: get("bpf-linker")?, cargo_deny: get("cargo-deny")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_its_own_section_only() {
        let text = "[a]\ntoolchain = \"0\"\n[workspace.metadata.osmia]\n# toolchain = \"1\"\ntoolchain = \"2\" # two\n\
                    bpf-linker=\"3\"\ncargo-deny = \"4\"\n[b]\ntoolchain = \"5\"\n";
        let want = Pin { toolchain: "2".into(), bpf_linker: "3".into(), cargo_deny: "4".into() };
        assert_eq!(Pin::parse(text), Ok(want));
    }

    #[test]
    fn names_the_missing_key() {
        assert_eq!(
            Pin::parse("[workspace.metadata.osmia]\ntoolchain = \"2\"\n[x]\nbpf-linker = \"1\"\n"),
            Err("bpf-linker")
        );
        assert_eq!(Pin::parse(""), Err("toolchain"));
    }

    #[test]
    fn the_repository_has_all_pins() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert!(Pin::read(&workspace).is_ok());
    }
}

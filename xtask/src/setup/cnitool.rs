//! cnitool, the reference library's own caller of plugins, which Debian does not have: built from `tests/tools` into `target/tools`.
//!
//! It needs Go 1.21 and Debian 12 has 1.19. That one can fetch the newer one as what Go itself fetches since then, a module with a
//! checksum, so no other source of Go is asked for. A newer Go on `PATH` is used as it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Step, packages};
use crate::process::{is_root, output, run};
use crate::workspace::Workspace;

const PACKAGE: &str = "github.com/containernetworking/cni/cnitool";
/// Minor version of Go that the pinned cnitool needs.
const NEEDED: u32 = 21;
/// What an older one fetches.
const TOOLCHAIN: &str = "golang.org/toolchain@v0.0.1-go1.21.13.linux-amd64";

/// The step.
pub(super) struct Cnitool<'a> {
    pub(super) workspace: &'a Workspace,
}

impl Cnitool<'_> {
    /// Its module: a change of the pin there builds it anew.
    fn module(&self) -> PathBuf {
        self.workspace.root.join("tests").join("tools")
    }

    fn binary(&self) -> PathBuf {
        self.workspace.target().join("tools").join("cnitool")
    }

    fn version(&self) -> Result<String> {
        let path = self.module().join("go.mod");
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let found = text.lines().find_map(|l| l.split_once("github.com/containernetworking/cni v"));
        Ok(found.with_context(|| format!("{} does not require cni", path.display()))?.1.trim().to_owned())
    }
}

impl Step for Cnitool<'_> {
    fn name(&self) -> String {
        format!("cnitool {}", self.version().unwrap_or_default())
    }

    fn missing(&self) -> Result<Option<String>> {
        let wanted = format!("mod\tgithub.com/containernetworking/cni\tv{}\t", self.version()?);
        let binary = self.binary();
        let built = fs::read(&binary).unwrap_or_default();
        // Go writes into a program the modules that it was built from.
        let is_it = built.windows(wanted.len()).any(|w| w == wanted.as_bytes());
        Ok((!is_it).then(|| if built.is_empty() { "not built" } else { "of another version" }.to_owned()))
    }

    fn forbidden(&self) -> Option<String> {
        (minor().is_none() && !is_root()).then(|| "there is no Go to build it; only root may install that".to_owned())
    }

    fn install(&self) -> Result<()> {
        if minor().is_none() {
            packages::install(&["golang-go"])?;
        }
        let go = match minor() {
            Some(minor) if minor >= NEEDED => PathBuf::from("go"),
            Some(_) => fetch()?,
            None => bail!("`go version` still fails after installing golang-go"),
        };
        let binary = self.binary();
        let folder = self.workspace.target().join("tools");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let mut build = Command::new(go);
        build.current_dir(self.module()).args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"]);
        build.arg(&binary).arg(PACKAGE);
        // Neither the pin nor the compiler changes by itself.
        build.env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").env_remove("GOROOT");
        run(&mut build)
    }

    fn by_hand(&self) -> String {
        let (module, binary) = (self.module(), self.binary());
        let build = format!("cd {} && CGO_ENABLED=0 go build -o {} {PACKAGE}", module.display(), binary.display());
        match minor() {
            Some(minor) if minor >= NEEDED => build,
            Some(_) => format!("# with Go 1.{NEEDED} or newer on PATH:\n    {build}"),
            None => "sudo apt-get update && sudo apt-get install -y --no-install-recommends golang-go".to_owned(),
        }
    }
}

/// Minor version of the Go on `PATH`, `None` if there is none.
fn minor() -> Option<u32> {
    let out = Command::new("go").args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").output().ok()?;
    parse_minor(&String::from_utf8_lossy(&out.stdout))
}

/// Of `go1.19.8` it is 19.
fn parse_minor(version: &str) -> Option<u32> {
    let rest = version.trim().strip_prefix("go1.")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Has the Go on `PATH` download a newer one; gives its program.
fn fetch() -> Result<PathBuf> {
    // In no module of ours: the toolchain is checked against Go's checksum database.
    let text = output(Command::new("go").args(["mod", "download", "-json", TOOLCHAIN]).current_dir("/"))?;
    let told: Value = serde_json::from_str(&text).context("reading what `go mod download` says")?;
    let folder = told.get("Dir").and_then(Value::as_str).context("`go mod download` names no folder")?;
    let folder = Path::new(folder);
    // A module's files are not executable; newer ones do the same to what they fetch.
    let programs = [folder.join("bin"), folder.join("pkg").join("tool").join("linux_amd64")];
    for entry in programs.iter().map(fs::read_dir).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        let path = entry?.path();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {} executable", path.display()))?;
    }
    Ok(folder.join("bin").join("go"))
}

#[cfg(test)]
mod tests {
    use super::parse_minor;

    #[test]
    fn versions_of_go() {
        assert_eq!(parse_minor("go1.19.8\n"), Some(19));
        assert_eq!(parse_minor("go1.21rc2"), Some(21));
        assert_eq!(parse_minor("devel go1.27-abc"), None);
    }
}

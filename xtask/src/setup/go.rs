//! Programs that tests run and Debian does not have, built from Go modules: each from its own folder in `tests/tools` (their
//! dependencies disagree) into `target/tools`.
//!
//! They need a newer Go than Debian 12 has. Its Go 1.19 can fetch one as what Go itself fetches since 1.21, a module with a checksum,
//! so no other source of Go is asked for. A Go on `PATH` that is new enough is used as it is.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Step, packages};
use crate::process::{is_root, output, run};
use crate::workspace::Workspace;

/// What an older Go fetches: at least as new as the newest `go` line in `tests/tools`.
const TOOLCHAIN: &str = "golang.org/toolchain@v0.0.1-go1.26.8.linux-amd64";
/// Folder with released binaries, as the Kubernetes world's test tools have it.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// A program built from a Go module.
pub(super) struct Program {
    /// Its folder in `tests/tools`, and its file name.
    name: &'static str,
    /// What is built.
    package: &'static str,
    /// The module whose version is pinned.
    module: &'static str,
    /// Whether `KUBEBUILDER_ASSETS` may have it.
    is_asset: bool,
    /// What a person should know of the build.
    cost: &'static str,
}

/// The reference library's own caller of plugins.
pub(super) const CNITOOL: Program = Program {
    name: "cnitool",
    package: "github.com/containernetworking/cni/cnitool",
    module: "github.com/containernetworking/cni",
    is_asset: false,
    cost: "",
};

/// The apiserver's store.
pub(super) const ETCD: Program = Program {
    name: "etcd",
    package: "go.etcd.io/etcd/server/v3",
    module: "go.etcd.io/etcd/server/v3",
    is_asset: true,
    cost: ", about a minute and a half",
};

/// The apiserver.
pub(super) const APISERVER: Program = Program {
    name: "kube-apiserver",
    package: "k8s.io/kubernetes/cmd/kube-apiserver",
    module: "k8s.io/kubernetes",
    is_asset: true,
    cost: ", 6 minutes on 2 cores (or set KUBEBUILDER_ASSETS to a folder with released etcd and kube-apiserver)",
};

/// Building one of them.
pub(super) struct GoProgram<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) program: Program,
}

impl GoProgram<'_> {
    /// Its module: a change of the pin there builds it anew.
    fn folder(&self) -> PathBuf {
        self.workspace.root.join("tests").join("tools").join(self.program.name)
    }

    fn binary(&self) -> PathBuf {
        self.workspace.target().join("tools").join(self.program.name)
    }

    fn manifest(&self) -> Result<String> {
        let path = self.folder().join("go.mod");
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    fn version(&self) -> Result<String> {
        let text = self.manifest()?;
        let found = pinned(&text, self.program.module);
        Ok(found.with_context(|| format!("{} is not required in its go.mod", self.program.module))?.to_owned())
    }

    /// Minor version of Go that the module asks for.
    fn needed(&self) -> Result<u32> {
        let text = self.manifest()?;
        let minor = text.lines().find_map(|l| l.strip_prefix("go 1.")?.split('.').next()?.trim().parse().ok());
        minor.context("its go.mod has no `go` line")
    }

    /// The released one, where there is one.
    fn asset(&self) -> Option<PathBuf> {
        let folder = env::var_os(ASSETS).filter(|_| self.program.is_asset)?;
        Some(Path::new(&folder).join(self.program.name)).filter(|path| path.is_file())
    }
}

impl Step for GoProgram<'_> {
    fn name(&self) -> String {
        match self.asset() {
            Some(path) => format!("{} ({})", self.program.name, path.display()),
            None => format!("{} {}", self.program.name, self.version().unwrap_or_default()),
        }
    }

    fn missing(&self) -> Result<Option<String>> {
        if self.asset().is_some() {
            return Ok(None);
        }
        let wanted = format!("{}\tv{}\t", self.program.module, self.version()?);
        let built = fs::read(self.binary()).unwrap_or_default();
        // Go writes into a program the modules that it was built from.
        let is_it = built.windows(wanted.len()).any(|w| w == wanted.as_bytes());
        let what = if built.is_empty() { "not built" } else { "of another version" };
        Ok((!is_it).then(|| format!("{what}{}", self.program.cost)))
    }

    fn forbidden(&self) -> Option<String> {
        (minor().is_none() && !is_root()).then(|| "there is no Go to build it; only root may install that".to_owned())
    }

    fn install(&self) -> Result<()> {
        if minor().is_none() {
            packages::install(&["golang-go"])?;
        }
        let needed = self.needed()?;
        let go = match minor() {
            Some(minor) if minor >= needed => PathBuf::from("go"),
            Some(_) => fetch()?,
            None => bail!("`go version` still fails after installing golang-go"),
        };
        let binary = self.binary();
        let folder = self.workspace.target().join("tools");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let mut build = Command::new(go);
        build.current_dir(self.folder()).args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"]);
        build.arg(&binary).arg(self.program.package);
        // Neither the pin nor the compiler changes by itself.
        build.env("GOFLAGS", "-mod=readonly").env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").env_remove("GOROOT");
        run(&mut build)
    }

    fn by_hand(&self) -> String {
        let (folder, binary, package) = (self.folder(), self.binary(), self.program.package);
        let build = format!("cd {} && CGO_ENABLED=0 go build -o {} {package}", folder.display(), binary.display());
        let needed = self.needed().unwrap_or_default();
        match minor() {
            Some(minor) if minor >= needed => build,
            Some(_) => format!("# with Go 1.{needed} or newer on PATH:\n    {build}"),
            None => "sudo apt-get update && sudo apt-get install -y --no-install-recommends golang-go".to_owned(),
        }
    }
}

/// The version that a go.mod requires of `module`, without its `v`.
fn pinned<'a>(manifest: &'a str, module: &str) -> Option<&'a str> {
    manifest.lines().find_map(|line| {
        let mut words = line.split_whitespace().filter(|word| *word != "require");
        (words.next()? == module).then(|| words.next()?.strip_prefix('v'))?
    })
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
    use super::{parse_minor, pinned};

    #[test]
    fn versions_of_go() {
        assert_eq!(parse_minor("go1.19.8\n"), Some(19));
        assert_eq!(parse_minor("go1.21rc2"), Some(21));
        assert_eq!(parse_minor("devel go1.27-abc"), None);
    }

    #[test]
    fn the_pin_is_what_the_module_requires() {
        let text = "module x\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n\tk8s.io/api v0.36.3 // indirect\n)\n\nreplace k8s.io/api => k8s.io/api v0.36.3\n";
        assert_eq!(pinned(text, "k8s.io/kubernetes"), Some("1.36.3"));
        assert_eq!(pinned("require k8s.io/kubernetes v1.36.3", "k8s.io/kubernetes"), Some("1.36.3"));
        assert_eq!(pinned(text, "k8s.io"), None);
    }
}

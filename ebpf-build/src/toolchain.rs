//! The toolchain: present, with rust-src, and which release it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Error, Pin, variable};

/// An installed toolchain with the sources of `core`.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// rustup's name of it.
    pub name: String,
    /// Its root folder; `lib` has the LLVM library that bpf-linker must be linked to.
    pub sysroot: PathBuf,
    /// What `rustc -vV` calls `release`, such as `1.99.1`: part of the name of its LLVM library.
    pub release: String,
    /// What it runs on, such as `x86_64-unknown-linux-gnu`: the folder of its own tools.
    pub host: String,
}

impl Toolchain {
    /// The toolchain that `EBPF_TOOLCHAIN` names, else the pinned one. No other is looked for: the linker must match it.
    ///
    /// # Errors
    /// When rustup or the toolchain or its rust-src are missing; the text has the command that installs them.
    pub fn find(pin: &Pin) -> Result<Self, Error> {
        let name = variable("EBPF_TOOLCHAIN").unwrap_or_else(|| pin.toolchain.clone());
        let install = format!(
            "run `cargo xtask setup`, or: rustup toolchain install {name} --profile minimal -c rust-src -c clippy -c rustfmt \
             --no-self-update"
        );
        let sysroot = rustc(&name, &["--print", "sysroot"])
            .map_err(|e| Error::new(format!("toolchain {name} does not run ({e}); {install}")))?;
        let sysroot = PathBuf::from(sysroot.trim());
        if !has_core(&sysroot) {
            return Err(Error::new(format!(
                "toolchain {name} has no rust-src, which `core` for BPF is built from; {install}"
            )));
        }
        let version = rustc(&name, &["-vV"]).map_err(|e| Error::new(format!("asking {name} for its version: {e}")))?;
        let field = |field: &str| {
            let value = version.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(": "));
            value.map(str::to_owned).ok_or_else(|| Error::new(format!("`rustc -vV` of {name} names no {field}")))
        };
        Ok(Self { release: field("release")?, host: field("host")?, name, sysroot })
    }
}

fn has_core(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file()
}

/// Runs the toolchain's rustc and gives what it printed.
fn rustc(toolchain: &str, args: &[&str]) -> Result<String, String> {
    let out = Command::new("rustup")
        .args(["run", toolchain, "rustc"])
        .args(args)
        // A missing toolchain is an error that names the command, not a silent download in the middle of a build.
        .env("RUSTUP_AUTO_INSTALL", "0")
        .env("RUST_BACKTRACE", "0")
        .env_remove("RUSTUP_TOOLCHAIN")
        .output()
        .map_err(|e| format!("rustup: {e}"))?;
    if !out.status.success() {
        // rustup's own advice, on the lines after, installs without the components.
        return Err(String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or_default().to_owned());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

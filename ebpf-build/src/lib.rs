//! Builds the BPF object: the one place that knows how, called by the agent's build script (so that a plain `cargo build`
//! never embeds a stale object) and by `cargo xtask`.
//!
//! The object is the bin `dataplane` of package `osmia-ebpf`, built for `bpfel-unknown-none` by a nested cargo with the
//! toolchain that the root manifest pins, into `target/ebpf`, which every profile of the outer build shares. What ships, and is tested, is
//! `target/ebpf/dataplane`, which is that without DWARF.
//!
//! Invariant: compiler and linker are of one LLVM. A linker built against another one stops with "Invalid record" or, worse,
//! does not; so what is not shown to fit is refused with the command that repairs it.
//!
//! Environment:
//!
//! | variable | meaning |
//! |---|---|
//! | `EBPF_OBJECT=path` | take this object, build nothing (packagers, reproducible images); relative to the root folder |
//! | `EBPF_SKIP=1` | no object (docs and lints on other systems); the agent then refuses to start |
//! | `EBPF_TOOLCHAIN=name` | another rustup toolchain than the pin |
//! | `EBPF_LINKER=path` | this bpf-linker, taken unseen |

mod error;
mod linker;
mod nested;
mod pin;
mod shipped;
mod toolchain;

pub use error::Error;
pub use linker::{Linker, install_root as linker_install_root, tool_folder};
pub use nested::{Layout, nested_cargo};
pub use pin::Pin;
pub use toolchain::Toolchain;

use std::path::{Path, PathBuf};

/// Every variable that changes what [`object`] returns: a build script prints `rerun-if-env-changed` for each.
pub const ENVIRONMENT: [&str; 4] = ["EBPF_OBJECT", "EBPF_SKIP", "EBPF_TOOLCHAIN", "EBPF_LINKER"];

/// Where the object comes from.
#[derive(Debug)]
pub enum Object {
    /// Built now, or found up to date.
    Built(PathBuf),
    /// Named by `EBPF_OBJECT`; not looked into.
    Given(PathBuf),
    /// `EBPF_SKIP` is set: there is none.
    Skipped,
}

/// Builds the object, or takes the one that the environment names.
///
/// `workspace` is the folder of the root manifest. What the environment names is of our layout: the next one's is always built.
///
/// # Errors
/// When toolchain, rust-src, linker or objcopy are missing or do not fit (the text names the command that installs them), and when the
/// nested build fails (its own output went to stderr).
pub fn object(workspace: &Path, layout: Layout) -> Result<Object, Error> {
    if let Some(path) = variable("EBPF_OBJECT").filter(|_| layout == Layout::Ours) {
        let path = workspace.join(path);
        if !path.is_file() {
            return Err(Error::new(format!("EBPF_OBJECT names {}, which is no file", path.display())));
        }
        return Ok(Object::Given(path));
    }
    if variable("EBPF_SKIP").is_some() {
        return Ok(Object::Skipped);
    }
    let mut cargo = nested_cargo(workspace, layout, "build")?;
    let status = cargo.args(["--quiet", "--release"]).status();
    let status = status.map_err(|e| Error::new(format!("starting rustup for the BPF build: {e}")))?;
    if !status.success() {
        return Err(Error::new(format!("building the BPF object failed ({status}); the compiler's output is above")));
    }
    let folder = layout.target_dir(workspace);
    let (compiled, object) = (folder.join(nested::TARGET).join("release").join(nested::BIN), folder.join(nested::BIN));
    shipped::strip(&Toolchain::find(&Pin::read(workspace)?)?, &compiled, &object)?;
    Ok(Object::Built(object))
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

//! Puts the BPF object at `OUT_DIR/dataplane` for the agent to embed. With `EBPF_SKIP` the file is empty.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use osmia_ebpf_build::{ENVIRONMENT, Layout, Object};

fn main() {
    // `cargo::error` shows the text by itself; the exit code makes cargo show what the nested build wrote to stderr.
    if let Err(error) = place_object() {
        println!("cargo::error={}", error.to_string().replace('\n', " "));
        std::process::exit(1);
    }
}

fn place_object() -> Result<(), Box<dyn Error>> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    for path in ["ebpf", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(path).display());
    }
    for name in ENVIRONMENT {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out =
        PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: this is a build script")?).join("dataplane");
    let layout = if env::var_os("CARGO_FEATURE_NEXT_LAYOUT").is_some() { Layout::Next } else { Layout::Ours };
    match osmia_ebpf_build::object(&workspace, layout)? {
        Object::Built(path) => fs::copy(path, out).map(drop)?,
        Object::Given(path) => {
            println!("cargo::rerun-if-changed={}", path.display());
            fs::copy(path, out).map(drop)?;
        }
        Object::Skipped => fs::write(out, [])?,
    }
    Ok(())
}

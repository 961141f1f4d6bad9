//! Runs every test: builds all once, then the test binaries, unit tests first, then those that need root. Two at a time, since most of
//! their time is waiting; what one says is shown when it ends, whole.

mod binaries;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::binaries::TestBinary;
use crate::NoSetup;
use crate::build::{self, Built};
use crate::process::{is_root, run};
use crate::say;
use crate::setup::{Scope, kernels};
use crate::workspace::{Workspace, clean};

/// Options of `test`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    setup: NoSetup,
    /// Only tests whose name, or whose test binary's name, contains this
    filter: Option<String>,
    /// For the test binaries, after `--`, such as `-- --nocapture`
    #[arg(last = true, value_name = "ARGS")]
    rest: Vec<String>,
}

impl Options {
    /// The kernel matrix alone.
    pub(crate) fn kernels(setup: NoSetup) -> Self {
        Self { setup, filter: Some(binaries::KERNELS.to_owned()), rest: Vec::new() }
    }
}

/// Builds and runs; fails if any test failed or none ran.
pub(crate) fn run_all(workspace: &Workspace, options: &Options) -> Result<()> {
    options.setup.or_setup(workspace, Scope::Test)?;
    let built = build::all(workspace)?;
    let binaries = say::step("test binaries", || binaries::build(workspace))?;
    let filter = options.filter.as_deref();

    let mut jobs = Vec::new();
    for binary in &binaries.tests {
        let Some(arguments) = selected(binary, &built, filter)? else { continue };
        if binary.needs_kernels() && !options.setup.no_setup {
            say::step("kernels of the matrix", || kernels::fetch(workspace, &binaries.kernel_fetcher))?;
        }
        if binary.needs_next_agent() {
            build::next_agent(workspace, &built)?;
        }
        let mut command = clean(&binary.path.to_string_lossy());
        command.current_dir(&binary.folder).args(arguments).args(&options.rest).stdin(Stdio::null());
        kernels::tell(workspace, &mut command);
        built.tell(&mut command);
        jobs.push(Job { binary, command });
    }
    let folder = workspace.root.join("target/test-output");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut ran = jobs.len();
    // Who asks for a program's own arguments wants to see it run.
    let at_once = if options.rest.is_empty() { AT_ONCE } else { 1 };
    let mut failed = run_jobs(jobs, at_once, &folder)?;
    if filter.is_none() {
        ran += 1;
        let documentation = say::step("examples in the documentation", || {
            run(workspace.cargo("test").args(["--quiet", "--workspace", "--doc"]))
        });
        if documentation.is_err() {
            failed.push("examples in the documentation".to_owned());
        }
    }
    if let Some(filter) = filter.filter(|_| ran == 0) {
        bail!("no test has `{filter}` in its name");
    }
    say::line(format_args!("programs: {} passed, {} failed", ran - failed.len(), failed.len()));
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Test programs that run at a time.
const AT_ONCE: usize = 2;

/// A test program, ready to run.
struct Job<'a> {
    binary: &'a TestBinary,
    command: Command,
}

/// Runs them; gives those that failed.
fn run_jobs(jobs: Vec<Job<'_>>, at_once: usize, folder: &Path) -> Result<Vec<String>> {
    let (queue, failed) = (Mutex::new(jobs.into_iter()), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            // The lock is given back before the program runs.
            let next = lock(&queue).next();
            let Some(Job { binary, mut command }) = next else { return Ok(()) };
            let label = &binary.label;
            if binary.needs_root && !is_root() {
                lock(&failed).push(format!("{label} (needs root)"));
                continue;
            }
            say::line(format_args!("==> {label}"));
            let start = Instant::now();
            let starting = || format!("starting {}", binary.path.display());
            let mut log = None;
            if at_once > 1 {
                // A file, no pipe: a program that a test has left running would keep a pipe open.
                let path = folder.join(format!("{}.log", label.replace(' ', "-")));
                let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
                command.stderr(file.try_clone()?).stdout(file);
                log = Some(path);
            }
            let status = command.status().with_context(starting)?;
            let said = log.map(fs::read).transpose().context("reading what the program said")?.unwrap_or_default();
            let outcome = if status.success() { "passed" } else { "FAILED" };
            let seconds = start.elapsed().as_secs_f64();
            say::line(format_args!("{}    {label}: {outcome} ({seconds:.1} s)", String::from_utf8_lossy(&said)));
            if !status.success() {
                lock(&failed).push(label.clone());
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| bail!("a test's runner panicked")))
    })?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Arguments with which the binary runs what the filter selects; `None` if that is nothing.
fn selected<'a>(binary: &TestBinary, built: &Built, filter: Option<&'a str>) -> Result<Option<Vec<&'a str>>> {
    let Some(filter) = filter else { return Ok(Some(Vec::new())) };
    if binary.label.contains(filter) {
        return Ok(Some(Vec::new()));
    }
    let mut list = clean(&binary.path.to_string_lossy());
    list.current_dir(&binary.folder).args(["--list", "--format", "terse", filter]).stdin(Stdio::null());
    let out = built.tell(&mut list).output().with_context(|| format!("listing the tests of {}", binary.label))?;
    let any = String::from_utf8_lossy(&out.stdout).lines().any(|l| l.ends_with(": test"));
    Ok(any.then(|| vec![filter]))
}

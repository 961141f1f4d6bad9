//! One object through all its checks: maps, every program's load, every classifier's test run and attachment.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use aya::programs::{Program, ProgramError, ProgramInfo, SchedClassifier};
use aya::{Ebpf, EbpfLoader, TestRun, TestRunOptions, VerifierLogLevel};

use crate::attach::Hooks;
use crate::features::features;
use crate::reporter::Reporter;

/// Checks the object at `path`; `label` is the first part of every check's name.
pub(crate) fn check(reporter: &mut Reporter, label: &str, path: &Path, hooks: &Hooks) {
    let Some(features) = reporter.value(&format!("{label}/features"), features()) else { return };
    let mut ebpf = match open(label, path, &features) {
        Ok(ebpf) => ebpf,
        Err(err) => {
            reporter.check(&format!("{label}/maps"), Err(err));
            return;
        }
    };
    let mut maps: Vec<&str> = ebpf.maps().map(|(name, _)| name).collect();
    maps.sort_unstable();
    reporter.check(&format!("{label}/maps"), Ok(maps.join(" ")));

    let mut programs: Vec<(&str, &mut Program)> = ebpf.programs_mut().collect();
    programs.sort_unstable_by_key(|(name, _)| *name);
    if programs.is_empty() {
        reporter.check(&format!("{label}/programs"), Err(anyhow::anyhow!("the object has no program")));
    }
    for (name, program) in programs {
        let step = format!("{label}/load/{name}");
        let loaded = load(program).map_err(|err| explained(reporter, &step, err)).and_then(|()| size(program));
        if reporter.check(&step, loaded).is_none() {
            continue;
        }
        if let Program::SchedClassifier(classifier) = program {
            reporter.check(&format!("{label}/run/{name}"), run(classifier));
            hooks.check(reporter, &format!("{label}/attach/{name}"), classifier);
        }
    }
}

/// Parses the object and creates its maps. Each object pins into a folder of its own.
fn open(label: &str, path: &Path, features: &[(&'static str, u32)]) -> Result<Ebpf> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let pins = Path::new("/sys/fs/bpf").join(label);
    fs::create_dir(&pins).with_context(|| format!("create {}", pins.display()))?;
    let mut loader = EbpfLoader::new();
    loader.default_map_pin_directory(&pins).verifier_log_level(VerifierLogLevel::VERBOSE | VerifierLogLevel::STATS);
    for (name, value) in features {
        loader.override_global(name, value, false);
    }
    loader.load(&bytes).context("create the maps")
}

fn load(program: &mut Program) -> Result<(), ProgramError> {
    match program {
        Program::SchedClassifier(program) => program.load(),
        Program::Xdp(program) => program.load(),
        Program::CgroupSkb(program) => program.load(),
        Program::CgroupSock(program) => program.load(),
        Program::CgroupSockAddr(program) => program.load(),
        Program::SockOps(program) => program.load(),
        // No other kind belongs into the dataplane.
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

/// Takes the verifier's log out of a load error, since it has many lines, and prints its end.
fn explained(reporter: &Reporter, step: &str, err: ProgramError) -> anyhow::Error {
    match err {
        ProgramError::LoadError { io_error, verifier_log } => {
            reporter.log(step, &verifier_log.to_string());
            anyhow::Error::new(io_error).context("the verifier refused the program")
        }
        other => other.into(),
    }
}

/// What the kernel says of a loaded program: instructions the verifier walked (from 5.16) and after translation.
fn size(program: &Program) -> Result<String> {
    let info: ProgramInfo = program.info().context("ask for the program's size")?;
    let translated = info.size_translated().map_or("unknown".into(), |bytes| (bytes / 8).to_string());
    Ok(match info.verified_instruction_count() {
        Some(verified) => format!("{verified} verified, {translated} translated"),
        None => format!("{translated} translated"),
    })
}

/// One run on a small IPv4 UDP packet. Any verdict is fine: the maps are empty.
fn run(program: &SchedClassifier) -> Result<String> {
    let mut packet = [0u8; 64];
    let header: [u8; 34] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, // Ethernet, IPv4
        0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ];
    packet.iter_mut().zip(header).for_each(|(byte, value)| *byte = value);
    let mut out = [0u8; 256];
    let result = program
        .test_run(TestRunOptions { data_in: Some(&packet), data_out: Some(&mut out), ..TestRunOptions::default() })
        .context("test run")?;
    if result.return_value as i32 > 8 {
        bail!("returned {}, which is no verdict of a classifier", result.return_value as i32);
    }
    Ok(format!("returned {}", result.return_value as i32))
}

//! The object into the kernel: what the kernel can do is asked first, then maps (adopted or made), programs, jump table.

use std::collections::BTreeMap;

use aya::{
    Ebpf, EbpfError, EbpfLoader, TestRun as _, TestRunOptions,
    maps::{MapError, ProgramArray},
    programs::{ProgramError, SchedClassifier},
};
use osmia_maps::{
    Pins,
    layout::{Meta, maps, programs},
    tables,
};

use super::{
    ApplyError, Feature, OpenError, ProgramLog,
    clock::{self, Sample},
    features,
};
use crate::clock::Clock;

/// Shortest packet that a test run takes, with room for the headers that probes touch.
const PACKET: [u8; 128] = [0; 128];

/// What the kernel said before the object was loaded for good.
pub(super) struct Probed {
    /// Jiffies a second.
    pub(super) hz: u32,
    /// Jiffies now.
    pub(super) sample: Sample,
    /// [`features::KNOWN`], asked.
    pub(super) features: Vec<Feature>,
}

impl Probed {
    /// The programs' constants. The same ones and the same object give the same programs.
    fn globals(&self, mark: u32) -> Vec<(&'static str, u32)> {
        let features = self.features.iter().map(|feature| (feature.name, u32::from(feature.present)));
        let settings = [
            (programs::MARK, mark),
            (programs::TICK_SHIFT, clock::tick_shift(self.hz)),
            (programs::TICKS_PER_SECOND, clock::ticks_per_second(self.hz)),
        ];
        features.chain(settings).collect()
    }
}

/// Loads the probes alone, beside maps of one row each that go away again: the answers are constants of the real load.
pub(super) fn probe(object: &[u8], before: Option<&Meta>, clock: &dyn Clock) -> Result<Probed, OpenError> {
    let mut loader = EbpfLoader::new();
    for name in known_maps() {
        loader.map_max_entries(name, 1);
    }
    let mut ebpf = loader.load(object).map_err(refused)?;
    let mut features = Vec::new();
    for known in features::KNOWN {
        let program = program(&mut ebpf, known.probe)?;
        // A kernel without the helper refuses the program: that is an answer.
        let present = program.load().is_ok() && run(known.probe, program)? == 1;
        features.push(known.found(present));
    }
    let clock_program = program(&mut ebpf, programs::CLOCK)?;
    load_one(programs::CLOCK, clock_program)?;
    let mut jiffies = || run(programs::CLOCK, clock_program);
    let hz = match before {
        // Of this boot, since bpffs does not outlive one.
        Some(meta) if meta.hz != 0 => meta.hz,
        _ => clock::rate(clock, &mut jiffies)?,
    };
    let sample = Sample { jiffies: jiffies()?, at: clock.monotonic() };
    Ok(Probed { hz, sample, features })
}

/// Which programs these are: FNV-1a (64 bits) over object and globals.
pub(super) fn identity(object: &[u8], probed: &Probed, mark: u32, log: ProgramLog) -> u64 {
    let globals = probed.globals(mark);
    let globals = globals.iter().flat_map(|(name, value)| name.bytes().chain(value.to_le_bytes())).chain([log.level()]);
    let hash = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    globals.fold(object.iter().copied().fold(0xcbf2_9ce4_8422_2325, hash), hash)
}

/// Adopts pinned maps, makes and pins the others, the jump table always.
pub(super) fn maps(
    pins: &Pins,
    object: &[u8],
    table: u64,
    probed: &Probed,
    mark: u32,
    sizes: &BTreeMap<&'static str, u32>,
    log: ProgramLog,
) -> Result<Ebpf, OpenError> {
    let globals = probed.globals(mark);
    let level = log.level();
    let mut loader = EbpfLoader::new();
    for name in tables::NAMES {
        loader.map_pin_path(name, pins.map(name));
        if let Some(&rows) = sizes.get(name) {
            loader.map_max_entries(name, rows);
        }
    }
    loader.map_pin_path(maps::PROGS, pins.progs(table));
    for (name, value) in &globals {
        loader.override_global(name, value, true);
    }
    loader.override_global(programs::LOG_LEVEL, &level, true);
    let ebpf = loader.load(object).map_err(refused)?;
    match known_maps().find(|name| ebpf.map(name).is_none()) {
        Some(missing) => Err(OpenError::Lacks { kind: "map", name: missing.to_owned() }),
        None => Ok(ebpf),
    }
}

/// Every program through the verifier.
pub(super) fn programs(ebpf: &mut Ebpf) -> Result<(), OpenError> {
    for name in programs::ATTACHED.iter().map(|hook| hook.name).chain(programs::JUMPS) {
        load_one(name, program(ebpf, name)?)?;
    }
    Ok(())
}

/// Fills the jump table. Whole before any link leads to it.
///
/// Programs that still run, of an earlier start, have another table: what they have begun with a packet (their scratch row is of their
/// own load) no program of this one can go on with (tried: filling the table in place lost a packet now and then, and all that need a
/// second stage for as long as a start killed in between was the last).
pub(super) fn jump_table(ebpf: &mut Ebpf) -> Result<(), OpenError> {
    let lacks = || OpenError::Lacks { kind: "map", name: maps::PROGS.to_owned() };
    let mut table = ProgramArray::try_from(ebpf.take_map(maps::PROGS).ok_or_else(lacks)?)
        .map_err(|source| OpenError::JumpTable { row: 0, source: Box::new(source) })?;
    for (row, name) in (0..).zip(programs::JUMPS) {
        let fd = program(ebpf, name)?.fd().map_err(|e| refused_program(name, e))?;
        table.set(row, fd, 0).map_err(|source| OpenError::JumpTable { row, source: Box::new(source) })?;
    }
    // The pin keeps it, and with it the programs in it.
    Ok(())
}

/// A program of the object by name.
pub(super) fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier, OpenError> {
    let lacks = || OpenError::Lacks { kind: "program", name: name.to_owned() };
    ebpf.program_mut(name).ok_or_else(lacks)?.try_into().map_err(|e| refused_program(name, e))
}

/// Number of a loaded program.
pub(super) fn id(ebpf: &Ebpf, name: &str) -> Result<u32, ApplyError> {
    let failed = |source: ProgramError| ApplyError::Program { name: name.to_owned(), source: Box::new(source) };
    let program = ebpf.program(name).ok_or_else(|| failed(ProgramError::NotLoaded))?;
    let program: &SchedClassifier = program.try_into().map_err(failed)?;
    Ok(program.info().map_err(failed)?.id())
}

fn load_one(name: &str, program: &mut SchedClassifier) -> Result<(), OpenError> {
    program.load().map_err(|e| refused_program(name, e))
}

fn run(name: &str, program: &SchedClassifier) -> Result<u32, OpenError> {
    let options = TestRunOptions { data_in: Some(&PACKET), ..TestRunOptions::new() };
    Ok(program.test_run(options).map_err(|e| refused_program(name, e))?.return_value)
}

fn refused_program(name: &str, source: ProgramError) -> OpenError {
    OpenError::Program { name: name.to_owned(), source: Box::new(source) }
}

fn refused(error: EbpfError) -> OpenError {
    match error {
        EbpfError::MapError(MapError::IncompatiblePinnedMap { name, property, expected, actual }) => {
            OpenError::Incompatible { map: name, property, actual, expected }
        }
        error => OpenError::Load(Box::new(error)),
    }
}

/// Every map that the agent knows of.
fn known_maps() -> impl Iterator<Item = &'static str> {
    tables::NAMES.into_iter().chain([maps::PROGS])
}

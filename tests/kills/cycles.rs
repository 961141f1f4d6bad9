//! The agent killed at random moments, in calls and in its own start, while pods come and go.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::cni_runner::Misbehave;
use osmia_lab::load::Datagrams;
use osmia_lab::random;

use crate::stage::{Garbage, Stage, code};

const CYCLES: usize = 8;
/// Pods that come and go at one time.
const LOOPS: usize = 3;
/// The cycles end after this long whatever they cost.
const LONGEST: Duration = Duration::from_secs(15);

/// Comes and goes until told to stop; says how many of its pods had an ADD that succeeded.
fn come_and_go(stage: &Stage, name: &str, stop: &AtomicBool) -> usize {
    let (mut whole, mut count) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let sandbox = stage.sandbox(format!("{name}-{count}"));
        match stage.node().runtime.add(&sandbox.attachment, Misbehave::default()) {
            Ok(_) => whole += 1,
            Err(error) => assert_eq!(code(&error), Some(11), "ADD: {error:#}\n{}", stage.story()),
        }
        let deleted = stage.node().runtime.del(&sandbox.attachment, Misbehave::default());
        deleted.unwrap_or_else(|err| panic!("DEL: {err:#}\n{}", stage.story()));
        stage.drop_sandbox(sandbox);
    }
    whole
}

#[test]
fn random_kills_of_the_agent_under_adds_and_dels_leave_nothing() {
    let mut stage = Stage::new(1, Garbage::Never);
    let (a, b) = (stage.pod(0, "old-a"), stage.pod(0, "old-b"));
    let traffic = Datagrams::start(&a.space, &b.space, b.address(true).unwrap(), 500).unwrap();
    stage.remember();
    let (stop, whole) = (AtomicBool::new(false), AtomicUsize::new(0));
    let below = |time: Duration| Duration::from_nanos(random() % time.as_nanos() as u64);
    let kills = thread::scope(|scope| {
        for name in ["x", "y", "z"].iter().take(LOOPS) {
            let (stage, stop, whole) = (&stage, &stop, &whole);
            scope.spawn(move || whole.fetch_add(come_and_go(stage, name, stop), Ordering::Relaxed));
        }
        let since = Instant::now();
        let mut kills = 0;
        while kills < CYCLES && since.elapsed() < LONGEST {
            // Every other one dies somewhere in its start, if the last start is a measure.
            if kills % 2 == 0 {
                stage.node().wait_ready().unwrap();
                thread::sleep(below(Duration::from_millis(200)));
            } else {
                thread::sleep(below(Duration::from_millis(400)));
            }
            stage.node().kill_agent().unwrap();
            kills += 1;
            thread::sleep(below(Duration::from_millis(50)));
            stage.node().start_agent().unwrap();
        }
        stage.node().wait_ready().unwrap();
        stop.store(true, Ordering::Relaxed);
        kills
    });
    stage.becomes_clean("random kills");
    let report = traffic.finish().unwrap();
    assert_eq!((report.missing, report.refused), (0, 0), "{report:?}");
    assert!(kills >= CYCLES / 2 && whole.load(Ordering::Relaxed) > 0, "{kills} kills, {whole:?} pods");
    eprintln!("{kills} kills, {} pods whole, {} datagrams, none missing", whole.into_inner(), report.sent);
}

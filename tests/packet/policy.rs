//! The decision of the loaded programs and of `osmia explain`, held against the oracle: random clusters, every event, first packets and living
//! flows, and the maps between any two writes of a change, whether its agent comes to its end or is killed there.

mod ask;
mod attack;
mod explain;
mod follow;
mod plane;
mod steps;
mod truth;

use std::cell::RefCell;
use std::env;
use std::path::Path;

use osmia_lab::Space;
use osmia_oracle::stories;
use proptest::test_runner::{Config, RngSeed, TestRunner};

/// Stories that have everything in them.
const FEW: u32 = 12;

/// The same stories every time, unless more are asked for.
fn config() -> Config {
    let asked = env::var("OSMIA_POLICY_CASES").ok().and_then(|n| n.parse().ok());
    let rng_seed = if asked.is_some() { RngSeed::Random } else { RngSeed::Fixed(4) };
    // A shorter story is worth a minute, not an hour.
    Config {
        cases: asked.unwrap_or(FEW),
        rng_seed,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    }
}

#[test]
fn the_programs_and_explain_decide_as_the_oracle_does() {
    // Pins of its own: an agent of this machine is no part of it.
    let space = Space::machine("osm-policy", Path::new("/sys/fs/bpf")).expect("namespaces");
    plane::devices(&space).expect("devices");
    let cases = config().cases;
    let told = space.run(|| {
        let plane = plane::Plane::load().expect("the object and its rows");
        let explain = explain::Explain::open(&plane.pins).expect("the maps once more");
        let (plane, seen) = (RefCell::new(plane), RefCell::<follow::Seen>::default());
        let outcome = TestRunner::new(config()).run(&stories::story(), |story| {
            let mut plane = plane.borrow_mut();
            plane.reset()?;
            follow::follow(&mut plane, &explain, &story, &mut seen.borrow_mut())
        });
        outcome.map(|()| seen.into_inner()).map_err(|failed| failed.to_string())
    });
    match told.expect("in the namespaces") {
        Ok(seen) => {
            println!("{cases} stories: {seen:?}");
            let follow::Seen { passed, dropped, between, killed, torn, went_on, cut } = seen;
            let all = [passed, dropped, between, killed, torn, went_on, cut];
            assert!(cases < FEW || all.iter().all(|count| *count > 0), "{seen:?}");
        }
        Err(failed) => panic!("{failed}"),
    }
}

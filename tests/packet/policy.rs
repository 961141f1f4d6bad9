//! The loaded programs' decision on first packets and on living flows, held against the oracle: random clusters, every event, and the maps
//! between any two writes of a change.

mod ask;
mod follow;
mod plane;
mod truth;

use std::env;

use osmia_lab::Space;
use osmia_oracle::stories;
use proptest::test_runner::{Config, RngSeed, TestRunner};

/// The same stories every time, unless more are asked for.
fn config() -> Config {
    let asked = env::var("OSMIA_POLICY_CASES").ok().and_then(|n| n.parse().ok());
    let rng_seed = if asked.is_some() { RngSeed::Random } else { RngSeed::Fixed(4) };
    // A shorter story is worth a minute, not an hour.
    Config {
        cases: asked.unwrap_or(12),
        rng_seed,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Config::default()
    }
}

#[test]
fn the_programs_decide_as_the_oracle_does() {
    let space = Space::network("osm-policy").expect("a namespace");
    plane::devices(&space).expect("devices");
    let told = space.run(|| {
        let mut plane = plane::Plane::load().expect("the object and its rows");
        let plane = std::cell::RefCell::new(&mut plane);
        let outcome = TestRunner::new(config()).run(&stories::story(), |story| {
            let mut plane = plane.borrow_mut();
            plane.reset()?;
            follow::follow(&mut plane, &story)
        });
        outcome.map_err(|failed| failed.to_string())
    });
    if let Err(failed) = told.expect("in the namespace") {
        panic!("{failed}");
    }
}

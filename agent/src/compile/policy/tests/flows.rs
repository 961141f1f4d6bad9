//! Flows that were judged once and pass until the epoch of their endpoint is another.

use std::collections::BTreeMap;

use super::{Answers, Direction, maps::Maps};

#[derive(Clone, Default, Debug)]
pub(super) struct Flows(BTreeMap<(u32, Direction), (u32, Vec<bool>)>);

impl Flows {
    /// Everything that passes now is a flow from now on.
    pub(super) fn open(&mut self, maps: &Maps, said: &Answers) {
        for (key, answers) in said {
            let epoch = maps.epoch(key.0);
            let (since, open) = self.0.entry(*key).or_insert_with(|| (epoch, vec![false; answers.len()]));
            if *since != epoch {
                (*since, *open) = (epoch, vec![false; answers.len()]);
            }
            for (open, passes) in open.iter_mut().zip(answers) {
                *open |= passes;
            }
        }
    }

    /// One that passes although nothing allows it.
    pub(super) fn outlived(&self, maps: &Maps, said: &Answers) -> Option<(u32, Direction, usize)> {
        let stale = said.iter().filter_map(|(key, answers)| {
            let (since, open) = self.0.get(key).filter(|(since, _)| *since == maps.epoch(key.0))?;
            debug_assert_eq!(*since, maps.epoch(key.0));
            let i = open.iter().zip(answers).position(|(open, passes)| *open && !passes)?;
            Some((key.0, key.1, i))
        });
        stale.into_iter().next()
    }
}

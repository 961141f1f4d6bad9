//! What is logged, for tests that ask who is told of what.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is logged while `f` runs, as the agent writes it.
pub(crate) fn logged(f: impl FnOnce()) -> String {
    // While there is one dispatcher alone, a line that another test writes first, which has none, is nobody's for good (tracing-core,
    // `Rebuilder::JustOne`).
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let said = Said::default();
    let into = said.clone();
    let log = tracing_subscriber::fmt().with_writer(move || into.clone()).with_ansi(false).with_target(false).finish();
    tracing::subscriber::with_default(log, f);
    let bytes = said.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

//! osmia: what the pinned maps say, agent dead or alive.
//!
//! * `command/`: a file a command; each reads the pins and gives a [`render::Document`].
//! * `render/`: a document as tables or JSON, once or again and again.
//!
//! Invariant: nothing is written to any map, and no map of another layout is decoded.

mod arguments;
mod command;
mod failure;
mod render;

use std::process::ExitCode;

use clap::Parser as _;

use self::arguments::Arguments;

fn main() -> ExitCode {
    let Arguments { common, command } = Arguments::parse();
    render::show(&common, || command.run(&common))
}

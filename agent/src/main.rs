//! `osmia-agent`.

use std::process::ExitCode;

use clap::Parser;
use osmia_agent::{app, config::Args};

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = app::init_log(args.log_format) {
        eprintln!("osmia-agent: {error:#}");
        return ExitCode::FAILURE;
    }
    match app::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

//! Agents and plugins killed, stopped and crowded: the real binaries against each other, judged by what is there afterwards.
//!
//! A kill at a step is a kill *before* a system call: strace injects SIGKILL on entry, and the kernel skips the call then. So the steps
//! of a call are the system calls of an undisturbed one; what lies between two of them changes nothing outside the process.
//!
//! Needs root, strace and `OSMIA_BIN_DIR`; `cargo xtask test kills` sets it. All is inside the lab's own namespaces.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests panic, for the backtrace")]

mod agent;
mod crowd;
mod cycles;
mod held;
mod plugin;
mod running;
mod stage;
mod strace;
mod twins;

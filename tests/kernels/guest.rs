//! Boots a kernel under qemu with an archive, and gives back what it printed.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The emulator for the guests.
const QEMU: &str = "qemu-system-x86_64";

/// The command that boots `kernel` with `initramfs` and its console on standard output.
///
/// TCG and not KVM: a nested guest may hang although `/dev/kvm` is there, and a boot by TCG takes seconds. One host thread for both
/// processors: with a thread each, one of the first twelve boots died of "Oops: int3" (6.12, qemu 7.2), most likely because a
/// processor still ran the breakpoint by which the kernel patches its code after the patch was done; and it was no faster.
pub(crate) fn qemu(kernel: &Path, initramfs: &Path) -> Command {
    let mut command = Command::new(QEMU);
    command.args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "1024"]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
    // A panic restarts at once, a restart ends qemu, and by a triple fault it needs no firmware.
    command.args(["-append", "console=ttyS0 loglevel=3 panic=-1 reboot=t rdinit=/init"]);
    command
}

/// Runs a guest to its end and returns its console. One that does not end within `limit` is killed, and that is an error with the
/// console in it.
pub(crate) fn run(mut command: Command, limit: Duration) -> Result<String> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().with_context(|| {
            format!("run {:?}: install Debian's qemu-system-x86, as `cargo xtask setup` does", command.get_program())
        })?;
    let mut errors = child.stderr.take().context("the guest's standard error")?;
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        errors.read_to_end(&mut text).map(|_| text)
    });
    let mut output = child.stdout.take().context("the guest's console")?;
    let (sender, pieces) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut buffer) {
            if sender.send(buffer[..read].to_vec()).is_err() {
                break;
            }
        }
    });

    let deadline = Instant::now() + limit;
    let mut console = Vec::new();
    let ended = loop {
        match pieces.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(piece) => console.extend(piece),
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    if !ended {
        child.kill().context("kill the guest")?;
    }
    let status = child.wait().context("wait for the guest")?;
    // Both end with the guest's ends of the pipes.
    let _ended = reader.join();
    let errors = errors.join().map_or_else(|_| Vec::new(), Result::unwrap_or_default);
    let (console, errors) =
        (String::from_utf8_lossy(&console).into_owned(), String::from_utf8_lossy(&errors).into_owned());
    if !ended {
        bail!("the guest did not end within {limit:?}, its console:\n{console}{errors}");
    }
    if !status.success() {
        bail!("the guest's emulator ended with {status}:\n{errors}{console}");
    }
    Ok(console)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::run;

    #[test]
    fn a_guest_that_hangs_is_killed_and_its_console_shown() {
        let mut hangs = Command::new("sh");
        hangs.args(["-c", "echo CHECK a ok; exec sleep 600"]);
        let start = Instant::now();
        let err = run(hangs, Duration::from_millis(500)).expect_err("it hangs");
        assert!(start.elapsed() < Duration::from_secs(60));
        assert!(err.to_string().contains("did not end") && err.to_string().contains("CHECK a ok"), "{err}");
    }

    #[test]
    fn a_missing_emulator_says_what_to_install() {
        let err = run(Command::new("osmia-no-such-emulator"), Duration::from_secs(1)).expect_err("not there");
        assert!(format!("{err:#}").contains("qemu-system-x86"), "{err:#}");
    }

    #[test]
    fn an_emulator_that_fails_is_an_error() {
        let mut fails = Command::new("sh");
        fails.args(["-c", "echo no such machine >&2; exit 1"]);
        let err = run(fails, Duration::from_secs(10)).expect_err("it fails");
        assert!(err.to_string().contains("no such machine"), "{err}");
    }
}

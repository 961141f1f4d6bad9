//! One connection: a payload there, the receiver's digest back.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::payload;
use super::{Arrival, Probe};
use crate::folder::random;

/// Enough that the kernel sends more than one segment at a time.
const LENGTH: usize = 256 * 1024;
const DIGEST: &[u8] = b"whole";

pub(super) fn run(probe: &Probe<'_>) -> Result<Arrival> {
    let seed = random();
    let (bound, port) = channel();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            probe.to.run(|| {
                let listener = TcpListener::bind((probe.destination, 0)).context("bind the receiver")?;
                bound.send(listener.local_addr()?.port()).context("the sender is gone")?;
                receive(&listener, seed, probe.patience)
            })?
        });
        let Ok(port) = port.recv_timeout(Duration::from_secs(10)) else {
            let error = receiver.join().map_err(|_| anyhow!("the receiver panicked"))?;
            return Err(error.err().unwrap_or_else(|| anyhow!("the receiver did not start")))
                .context(probe.to.name().to_owned());
        };
        let target = SocketAddr::new(probe.destination, port);
        let sent = probe.from.run(|| send(target, seed, probe.patience))?;
        let mut arrival = receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
        match sent {
            Ok(true) => arrival.returned = 1,
            Ok(false) => arrival.note = Some("no digest came back".into()),
            Err(err) => arrival.note = Some(format!("{err:#}")),
        }
        Ok(arrival)
    })
}

fn receive(listener: &TcpListener, seed: u64, patience: Duration) -> Result<Arrival> {
    let mut arrival = Arrival { sent: 1, whole: true, ..Arrival::default() };
    let until = Instant::now() + patience;
    let wait = Timespec::try_from(patience).context("the time limit")?;
    let ready = poll(&mut [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)], Some(&wait))?;
    if ready == 0 {
        return Ok(arrival);
    }
    let (mut stream, peer) = listener.accept().context("accept")?;
    arrival.count = 1;
    arrival.peers.insert(peer.ip().to_canonical());
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left))?;
    let mut bytes = Vec::new();
    // A stream that breaks has not arrived whole.
    let read = stream.read_to_end(&mut bytes);
    arrival.whole = read.is_ok() && bytes.len() == LENGTH && payload::read(seed, &bytes) == Some((0, true));
    if arrival.whole {
        // What is lost here does not come back, which the sender sees.
        let _ = stream.write_all(DIGEST);
    }
    Ok(arrival)
}

fn send(target: SocketAddr, seed: u64, patience: Duration) -> Result<bool> {
    let mut stream = TcpStream::connect_timeout(&target, patience).context("connect")?;
    stream.set_write_timeout(Some(patience))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(&payload::make(seed, 0, LENGTH)).context("send")?;
    stream.shutdown(Shutdown::Write).context("send")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("receive")?;
    Ok(answer == DIGEST)
}

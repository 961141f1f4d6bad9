//! Numbered datagrams one way, at a steady rate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use crate::space::Space;

const TICK: Duration = Duration::from_millis(1);
/// So large that a receiver kept off the CPU loses nothing for seconds.
const BUFFER: usize = 16 << 20;
/// How long the last datagrams may be on their way.
const LAST: Duration = Duration::from_millis(500);

/// A running sender and its receiver.
#[derive(Debug)]
pub struct Datagrams {
    stop: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    sender: JoinHandle<Result<Sent>>,
    receiver: JoinHandle<Result<Vec<u64>>>,
}

#[derive(Debug)]
struct Sent {
    count: u64,
    errors: u64,
}

/// What became of them.
#[derive(Clone, Debug)]
pub struct DatagramsReport {
    /// Sent, and taken by the sender's kernel.
    pub sent: u64,
    /// Sends that the sender's kernel refused.
    pub refused: u64,
    /// Numbers that never arrived.
    pub missing: u64,
    /// Length of the longest row of missing numbers.
    pub longest: u64,
    /// Datagrams that arrived twice.
    pub twice: u64,
}

impl Datagrams {
    /// Starts sending `rate` datagrams a second to `destination`, an address inside `to`.
    ///
    /// # Errors
    /// A socket was refused.
    pub fn start(from: &Space, to: &Space, destination: IpAddr, rate: u32) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(AtomicU64::new(0));
        let socket = to.run(|| {
            let socket = UdpSocket::bind((destination, 0)).context("bind the receiver")?;
            set_socket_recv_buffer_size_force(&socket, BUFFER).context("size the receiver")?;
            socket.set_read_timeout(Some(LAST))?;
            Ok::<_, anyhow::Error>(socket)
        })??;
        let target = socket.local_addr()?;
        let (opened, answer) = channel();
        let (from, told) = (from.try_clone()?, Arc::clone(&stop));
        let sender = thread::Builder::new().name("datagrams".into()).spawn(move || {
            let socket = from.enter().and_then(|()| open(target));
            match socket {
                Ok(socket) => {
                    opened.send(Ok(())).context("the starter is gone")?;
                    Ok(send(&socket, rate, &told))
                }
                Err(err) => {
                    opened.send(Err(err)).context("the starter is gone")?;
                    Ok(Sent { count: 0, errors: 0 })
                }
            }
        })?;
        answer.recv().context("the sender ended")??;
        let (told, count) = (Arc::clone(&stop), Arc::clone(&arrived));
        let receiver =
            thread::Builder::new().name("datagrams".into()).spawn(move || Ok(receive(&socket, &told, &count)))?;
        Ok(Self { stop, arrived, sender, receiver })
    }

    /// How many have arrived so far.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Ends it.
    ///
    /// # Errors
    /// A thread panicked.
    pub fn finish(self) -> Result<DatagramsReport> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().map_err(|_| anyhow!("the sender panicked"))??;
        let seen = self.receiver.join().map_err(|_| anyhow!("the receiver panicked"))??;
        Ok(report(&sent, &seen))
    }
}

fn open(target: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).context("bind the sender")?;
    socket.connect(target).context("connect the sender")?;
    Ok(socket)
}

fn send(socket: &UdpSocket, rate: u32, stop: &AtomicBool) -> Sent {
    let start = Instant::now();
    let mut sent = Sent { count: 0, errors: 0 };
    let mut tries: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        // Who was kept off the CPU for long does not make up for it in one burst.
        tries = tries.max(due.saturating_sub(u64::from(rate) / 20));
        while tries < due {
            tries += 1;
            match socket.send(&sent.count.to_be_bytes()) {
                Ok(_) => sent.count += 1,
                Err(_) => sent.errors += 1,
            }
        }
        thread::sleep(TICK);
    }
    sent
}

/// How often each number came.
fn receive(socket: &UdpSocket, stop: &AtomicBool, arrived: &AtomicU64) -> Vec<u64> {
    let (mut seen, mut buffer) = (Vec::<u64>::new(), [0; 16]);
    loop {
        match socket.recv(&mut buffer) {
            Ok(8) => {
                let Some(number) = buffer.first_chunk().map(|b| u64::from_be_bytes(*b) as usize) else { continue };
                if seen.len() <= number {
                    seen.resize(number + 1, 0);
                }
                if let Some(count) = seen.get_mut(number) {
                    *count += 1;
                }
                arrived.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) if stop.load(Ordering::Relaxed) => return seen,
            _ => {}
        }
    }
}

fn report(sent: &Sent, seen: &[u64]) -> DatagramsReport {
    let (mut missing, mut longest, mut row) = (0, 0, 0);
    for number in 0..sent.count {
        if seen.get(number as usize).is_some_and(|n| *n > 0) {
            row = 0;
        } else {
            row += 1;
            missing += 1;
            longest = longest.max(row);
        }
    }
    let twice = seen.iter().map(|n| n.saturating_sub(1)).sum();
    DatagramsReport { sent: sent.count, refused: sent.errors, missing, longest, twice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_missing_and_what_came_twice() {
        let report = report(&Sent { count: 6, errors: 1 }, &[1, 0, 0, 2, 1]);
        assert_eq!((report.missing, report.longest, report.twice, report.refused), (3, 2, 1, 1));
    }
}

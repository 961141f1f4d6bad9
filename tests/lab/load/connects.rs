//! A new connection at a steady pace, each carrying one byte there and back.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::space::Space;

/// A connect that takes longer has failed: a lost SYN comes again after 1 s, and must show.
const LIMIT: Duration = Duration::from_millis(900);

/// A running client and its server.
#[derive(Debug)]
pub struct Connects {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    client: JoinHandle<Result<ConnectsReport>>,
    server: JoinHandle<()>,
}

/// What became of them.
#[derive(Clone, Debug, Default)]
pub struct ConnectsReport {
    /// Tried.
    pub tried: u64,
    /// Not connected, or not answered.
    pub failed: u64,
    /// Why the first one failed.
    pub first: Option<String>,
    /// The longest that succeeded, from connect to answer.
    pub slowest: Duration,
    /// Connections the server served.
    pub served: u64,
}

impl Connects {
    /// Starts connecting every `pace` from `from` to `destination`, an address inside `to`.
    ///
    /// # Errors
    /// A socket was refused.
    pub fn start(from: &Space, to: &Space, destination: IpAddr, pace: Duration) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let served = Arc::new(AtomicU64::new(0));
        let listener = to.run(|| TcpListener::bind((destination, 0)))?.context("bind the server")?;
        let target = listener.local_addr()?;
        let (told, count) = (Arc::clone(&stop), Arc::clone(&served));
        let server = thread::Builder::new().name("connects".into()).spawn(move || serve(&listener, &told, &count))?;
        let (from, told) = (from.try_clone()?, Arc::clone(&stop));
        let client = thread::Builder::new().name("connects".into()).spawn(move || {
            from.enter()?;
            drop(from);
            Ok(connect(target, pace, &told))
        })?;
        Ok(Self { stop, served, client, server })
    }

    /// Ends it.
    ///
    /// # Errors
    /// A thread panicked, or the namespace could not be entered.
    pub fn finish(self) -> Result<ConnectsReport> {
        self.stop.store(true, Ordering::Relaxed);
        let report = self.client.join().map_err(|_| anyhow!("the client panicked"))??;
        self.server.join().map_err(|_| anyhow!("the server panicked"))?;
        Ok(ConnectsReport { served: self.served.load(Ordering::Relaxed), ..report })
    }
}

fn connect(target: SocketAddr, pace: Duration, stop: &AtomicBool) -> ConnectsReport {
    let mut report = ConnectsReport::default();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        report.tried += 1;
        match once(target) {
            Ok(()) => report.slowest = report.slowest.max(start.elapsed()),
            Err(err) => {
                report.failed += 1;
                report.first.get_or_insert_with(|| format!("connection {}: {err:#}", report.tried));
            }
        }
        // The pace is kept, not made up for.
        next = (next + pace).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    report
}

fn once(target: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, LIMIT).context("connect")?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"?").context("send")?;
    let mut answer = [0];
    stream.read_exact(&mut answer).context("receive")?;
    Ok(())
}

fn serve(listener: &TcpListener, stop: &AtomicBool, served: &AtomicU64) {
    let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !stop.load(Ordering::Relaxed) {
        let ready = poll(&mut [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)], Some(&wait));
        if !matches!(ready, Ok(1..)) {
            continue;
        }
        // What breaks here is seen, and counted, by the client.
        let Ok((mut stream, _)) = listener.accept() else { continue };
        let _ = stream.set_read_timeout(Some(LIMIT));
        let mut question = [0];
        if stream.read_exact(&mut question).is_ok() && stream.write_all(&question).is_ok() {
            served.fetch_add(1, Ordering::Relaxed);
        }
    }
}

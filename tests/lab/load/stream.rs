//! One bulk stream at a set rate, counted by its receiver.
//!
//! Paced, since a stream at full speed measures who else wants the CPU, and a starting agent does. What the network does to it shows all
//! the same: a stall is not made up for beyond a fraction of a second.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::space::Space;

const CHUNK: usize = 64 * 1024;
/// What of the rate may be made up for after a stall.
const CREDIT: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(3);

/// A running stream.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    sender: JoinHandle<Result<()>>,
    receiver: JoinHandle<()>,
}

impl Stream {
    /// Starts a stream of `rate` bytes a second from `from` to `destination`, an address inside `to`.
    ///
    /// # Errors
    /// It does not connect within 3 s; a socket was refused.
    pub fn start(from: &Space, to: &Space, destination: IpAddr, rate: u64) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let received = Arc::new(AtomicU64::new(0));
        let listener = to.run(|| TcpListener::bind((destination, 0)))?.context("bind the receiver")?;
        let target = listener.local_addr()?;
        let out = from.run(|| TcpStream::connect_timeout(&target, CONNECT))?.context("connect the stream")?;
        out.set_write_timeout(Some(CONNECT))?;
        let input = accept(&listener)?;
        let (told, count) = (Arc::clone(&stop), Arc::clone(&received));
        let receiver = thread::Builder::new().name("stream".into()).spawn(move || receive(input, &told, &count))?;
        let told = Arc::clone(&stop);
        let sender = thread::Builder::new().name("stream".into()).spawn(move || send(out, rate, &told))?;
        Ok(Self { stop, received, sender, receiver })
    }

    /// Bytes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Ends it.
    ///
    /// # Errors
    /// The stream broke.
    pub fn finish(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().map_err(|_| anyhow!("the sender panicked"))?;
        self.receiver.join().map_err(|_| anyhow!("the receiver panicked"))?;
        sent
    }
}

pub(super) fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let wait = Timespec::try_from(CONNECT).context("the time limit")?;
    if poll(&mut [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)], Some(&wait))? == 0 {
        bail!("connected, but the receiver has seen no one");
    }
    let (stream, _peer): (_, SocketAddr) = listener.accept().context("accept")?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    Ok(stream)
}

fn send(mut stream: TcpStream, rate: u64, stop: &AtomicBool) -> Result<()> {
    let chunk = vec![0x55; CHUNK];
    let each = Duration::from_secs_f64(CHUNK as f64 / rate as f64);
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        due = due.max(now.checked_sub(CREDIT).unwrap_or(now));
        if due > now {
            thread::sleep(due - now);
        }
        due += each;
        stream.write_all(&chunk).context("the stream broke")?;
    }
    Ok(())
}

fn receive(mut stream: TcpStream, stop: &AtomicBool, received: &AtomicU64) {
    let mut buffer = vec![0; 4 * CHUNK];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                received.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(_) if stop.load(Ordering::Relaxed) => return,
            Err(_) => {}
        }
    }
}

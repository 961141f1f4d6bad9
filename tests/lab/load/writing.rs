//! A connection on which one side writes for ever, a little at a time: whether it goes on, its reader says.
//!
//! What is written carries the time at which it was: so a busy machine, whose reader is late, is not taken for a connection that goes on.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::stream::accept;
use crate::space::Space;

/// Between two writes.
const PACE: Duration = Duration::from_millis(5);
const CONNECT: Duration = Duration::from_secs(5);
/// How long it is looked at whether a connection that is cut brings something.
const LONG: Duration = Duration::from_millis(400);
/// What is written at a time, in bytes; the first eight are the time.
const RECORD: usize = 100;

/// A connection that the client opened, and how much one of its ends has read of what the other writes. Dropped, it ends.
#[derive(Debug)]
pub struct Writing {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    /// Bytes that were read.
    read: AtomicU64,
    /// When the last of what was read had been written, in us since the start.
    last: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Writing {
    /// Opens one from `client` to `address`, which lies in `server`, and waits until it flows. The side that does not write is silent.
    ///
    /// # Errors
    /// It does not connect, or nothing arrives.
    pub fn start(client: &Space, server: &Space, address: IpAddr, server_writes: bool) -> Result<Self> {
        let listener = server.run(|| TcpListener::bind((address, 0)))?.context("bind the server")?;
        let target = listener.local_addr()?;
        let opened = client.run(|| TcpStream::connect_timeout(&target, CONNECT))?.context("connect")?;
        let accepted = accept(&listener)?;
        let (writer, reader) = if server_writes { (accepted, opened) } else { (opened, accepted) };
        writer.set_nonblocking(true)?;
        reader.set_read_timeout(Some(PACE))?;
        let (read, last, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { start: Instant::now(), read, last, stop });
        let mut new = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        let writes = Arc::clone(&shared);
        new.thread(move || write(writer, &writes))?;
        new.thread(move || read_all(reader, &shared))?;
        new.flows()?;
        Ok(new)
    }

    fn thread(&mut self, body: impl FnOnce() + Send + 'static) -> Result<()> {
        self.threads.push(thread::Builder::new().name("writing".into()).spawn(body)?);
        Ok(())
    }

    fn read(&self) -> u64 {
        self.shared.read.load(Ordering::Relaxed)
    }

    /// That it goes on.
    ///
    /// # Errors
    /// Nothing arrives within 5 s.
    pub fn flows(&self) -> Result<()> {
        let before = self.read();
        for _ in 0..250 {
            thread::sleep(PACE * 4);
            if self.read() > before + 100 {
                return Ok(());
            }
        }
        bail!("nothing arrives on a connection that is allowed");
    }

    /// That it is cut by now: nothing of what is written from here on arrives.
    ///
    /// # Errors
    /// Something arrives.
    pub fn stands(&self) -> Result<()> {
        let cut = self.shared.now();
        thread::sleep(LONG);
        match self.shared.last.load(Ordering::Relaxed).checked_sub(cut) {
            None | Some(0) => Ok(()),
            Some(later) => bail!("what was written {later} us after its permission went has arrived"),
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn write(mut stream: TcpStream, shared: &Shared) {
    let mut record = [0; RECORD];
    while !shared.is_over() {
        if let Some(time) = record.first_chunk_mut() {
            *time = shared.now().to_be_bytes();
        }
        let mut rest = record.as_slice();
        // Whole, so that the reader finds the next one's time. A full buffer is what is seen here of a connection that is cut.
        while !rest.is_empty() && !shared.is_over() {
            match stream.write(rest) {
                Ok(length) => rest = rest.get(length..).unwrap_or_default(),
                Err(_) => thread::sleep(PACE),
            }
        }
        thread::sleep(PACE);
    }
}

fn read_all(mut stream: TcpStream, shared: &Shared) {
    let (mut buffer, mut whole) = ([0; 40 * RECORD], Vec::new());
    while !shared.is_over() {
        let Ok(length) = stream.read(&mut buffer) else { continue };
        whole.extend_from_slice(buffer.get(..length).unwrap_or_default());
        let (records, part) = whole.as_chunks::<RECORD>();
        if let Some(time) = records.last().and_then(|record| record.first_chunk()) {
            shared.last.fetch_max(u64::from_be_bytes(*time), Ordering::Relaxed);
        }
        whole = part.to_vec();
        shared.read.fetch_add(length as u64, Ordering::Relaxed);
        if length == 0 {
            // The writer is gone.
            thread::sleep(PACE);
        }
    }
}

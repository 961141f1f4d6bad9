//! A connection on which one side writes for ever, a little at a time: whether it goes on, its reader says.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::stream::accept;
use crate::space::Space;

/// Between two writes.
const PACE: Duration = Duration::from_millis(5);
const CONNECT: Duration = Duration::from_secs(5);
/// What was sent before a connection was cut has arrived after it.
const UNDER_WAY: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(400);

/// A connection that the client opened, and how much one of its ends has read of what the other writes. Dropped, it ends.
#[derive(Debug)]
pub struct Writing {
    read: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
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
        let mut new = Self { read: Arc::default(), stop: Arc::default(), threads: Vec::new() };
        let told = Arc::clone(&new.stop);
        new.thread(move || write(writer, &told))?;
        let (told, count) = (Arc::clone(&new.stop), Arc::clone(&new.read));
        new.thread(move || count_bytes(reader, &count, &told))?;
        new.flows()?;
        Ok(new)
    }

    fn thread(&mut self, body: impl FnOnce() + Send + 'static) -> Result<()> {
        self.threads.push(thread::Builder::new().name("writing".into()).spawn(body)?);
        Ok(())
    }

    fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
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

    /// That it is cut: but for what was under way nothing arrives.
    ///
    /// # Errors
    /// Something arrives.
    pub fn stands(&self) -> Result<()> {
        thread::sleep(UNDER_WAY);
        let before = self.read();
        thread::sleep(LONG);
        match self.read() - before {
            0 => Ok(()),
            more => bail!("{more} bytes arrived after its permission went"),
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn write(mut stream: TcpStream, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        // A full buffer is what is seen here of a connection that is cut.
        let _ = stream.write(&[7; 100]);
        thread::sleep(PACE);
    }
}

fn count_bytes(mut stream: TcpStream, count: &AtomicU64, stop: &AtomicBool) {
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(length) = stream.read(&mut buffer) {
            count.fetch_add(length as u64, Ordering::Relaxed);
        }
    }
}

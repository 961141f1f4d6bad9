//! Questions and answers of one byte, on one connection or each on its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Did, PATIENCE};
use crate::cpu;

pub(super) fn open(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(at).with_context(|| format!("connect to {at}"))?;
    stream.set_nodelay(true).context("switch Nagle's algorithm off")?;
    stream.set_read_timeout(Some(PATIENCE)).context("set a time limit")?;
    Ok(stream)
}

/// Answers bytes; one connection after the other.
pub(super) fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        // What fails here fails at the client, which reports it.
        let Ok(mut stream) = stream else { continue };
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    }
}

pub(super) fn transactions(stream: &mut TcpStream, end: Instant) -> Result<Did> {
    // More than one core can do; memory of a burst is touched before it is timed.
    let mut took = vec![1_u32; 1 << 19];
    took.clear();
    let before = cpu::of_this_thread();
    let mut last = Instant::now();
    while last < end {
        ask(stream)?;
        let now = Instant::now();
        if took.len() < took.capacity() {
            took.push((now - last).as_nanos() as u32);
        }
        last = now;
    }
    let cpu = cpu::of_this_thread().saturating_sub(before);
    let units = took.len() as u64;
    took.sort_unstable();
    let percentile = |percent: usize| took.get(took.len() * percent / 100).map_or(0, |ns| u64::from(*ns));
    Ok(Did { units, cpu: cpu.as_nanos() as u64, p50: percentile(50), p99: percentile(99) })
}

pub(super) fn whole(at: SocketAddr, end: Instant) -> Result<Did> {
    let before = cpu::of_this_thread();
    let mut units = 0;
    while Instant::now() < end {
        let mut stream = TcpStream::connect(at).with_context(|| format!("connection {units} to {at}"))?;
        ask(&mut stream)?;
        units += 1;
    }
    let cpu = cpu::of_this_thread().saturating_sub(before);
    Ok(Did { units, cpu: cpu.as_nanos() as u64, p50: 0, p99: 0 })
}

fn ask(stream: &mut TcpStream) -> Result<()> {
    let mut byte = *b"?";
    stream.write_all(&byte).context("ask")?;
    stream.read_exact(&mut byte).context("wait for the answer")
}

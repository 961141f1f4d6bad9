//! Bulk over TCP; the server says what arrived.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Did, PATIENCE};
use crate::cpu;

/// As iperf3 writes and reads.
const CHUNK: usize = 128 << 10;

pub(super) fn serve(listener: &TcpListener) {
    let mut buffer = vec![0; CHUNK];
    for stream in listener.incoming() {
        // What fails here fails at the client, which reports it.
        let Ok(mut stream) = stream else { continue };
        let mut total = 0_u64;
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            total += length as u64;
        }
        let _ = stream.write_all(&total.to_be_bytes());
    }
}

pub(super) fn send(at: SocketAddr, end: Instant) -> Result<Did> {
    let chunk = vec![0; CHUNK];
    let before = cpu::of_this_thread();
    let mut stream = TcpStream::connect(at).with_context(|| format!("connect to {at}"))?;
    stream.set_read_timeout(Some(PATIENCE)).context("set a time limit")?;
    stream.set_write_timeout(Some(PATIENCE)).context("set a time limit")?;
    while Instant::now() < end {
        stream.write_all(&chunk).context("send")?;
    }
    stream.shutdown(Shutdown::Write).context("say that this was all")?;
    let mut total = [0; 8];
    stream.read_exact(&mut total).context("wait for the server's count")?;
    let cpu = cpu::of_this_thread().saturating_sub(before);
    Ok(Did { units: u64::from_be_bytes(total), cpu: cpu.as_nanos() as u64, p50: 0, p99: 0 })
}

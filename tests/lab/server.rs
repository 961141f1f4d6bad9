//! A server on a port: what it hears decides what arrived.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::folder::random;
use crate::probe::Proto;
use crate::space::Space;

/// How often a server looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);
/// How long what must arrive may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is waited for.
const SILENCE: Duration = Duration::from_millis(400);

/// A server of TCP or UDP, of both families. It remembers the numbers that it was sent, and sends each back. Dropped, it ends.
#[derive(Debug)]
pub struct Server {
    /// Its protocol.
    pub proto: Proto,
    /// Its port.
    pub port: u16,
    heard: Arc<Heard>,
    stop: Arc<AtomicBool>,
}

/// The numbers that a server was sent.
#[derive(Debug, Default)]
struct Heard(Mutex<BTreeSet<u64>>);

impl Heard {
    fn numbers(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Starts one in a namespace.
    ///
    /// # Errors
    /// The port is taken; there is no server of ICMP.
    pub fn start(space: &Space, proto: Proto, port: u16) -> Result<Self> {
        let (heard, stop) = (Arc::<Heard>::default(), Arc::<AtomicBool>::default());
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let (hears, told) = (Arc::clone(&heard), Arc::clone(&stop));
        let word = || format!("bind {} port {port} in {}", proto.name(), space.name());
        match proto {
            Proto::Udp => {
                let socket = space.run(|| bound(|| UdpSocket::bind(any)))?.with_context(word)?;
                socket.set_read_timeout(Some(LOOK))?;
                thread::Builder::new().name("server".into()).spawn(move || datagrams(&socket, &hears, &told))?;
            }
            Proto::Tcp => {
                let listener = space.run(|| bound(|| TcpListener::bind(any)))?.with_context(word)?;
                listener.set_nonblocking(true)?;
                thread::Builder::new().name("server".into()).spawn(move || connections(&listener, &hears, &told))?;
            }
            Proto::Icmp => bail!("there is no server of echo requests"),
        }
        Ok(Self { proto, port, heard, stop })
    }

    /// How many numbers it heard.
    #[must_use]
    pub fn count(&self) -> usize {
        self.heard.numbers().len()
    }

    /// Whether what `from` sends to this server at `address` arrives. What is expected says how long it is waited for.
    ///
    /// # Errors
    /// A socket could not be made: the lab's fault, not the network's.
    pub fn hears(&self, from: &Space, address: IpAddr, expected: bool) -> Result<bool> {
        let number = random();
        let until = Instant::now() + if expected { PATIENCE } else { SILENCE };
        let target = SocketAddr::new(address, self.port);
        // Kept open until it is known whether it arrived.
        let _sent = from.run(|| send(self.proto, target, number, until))??;
        loop {
            if self.heard.numbers().contains(&number) {
                return Ok(true);
            }
            if Instant::now() > until {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A process that somebody has just forked may hold the port of a server before for a moment more.
fn bound<T>(bind: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        match bind() {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(LOOK);
            }
            result => return result,
        }
    }
}

fn send(proto: Proto, target: SocketAddr, number: u64, until: Instant) -> Result<Option<OwnedFd>> {
    let bytes = number.to_be_bytes();
    if proto == Proto::Udp {
        let any: IpAddr = if target.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let socket = UdpSocket::bind((any, 0)).context("bind the sender")?;
        // One that the kernel refuses does not arrive.
        let _ = socket.send_to(&bytes, target);
        return Ok(Some(socket.into()));
    }
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let connected = TcpStream::connect_timeout(&target, left).and_then(|mut stream| {
        stream.write_all(&bytes)?;
        Ok(stream)
    });
    // Who is not let in, or cut off, has sent nothing.
    Ok(connected.ok().map(OwnedFd::from))
}

fn datagrams(socket: &UdpSocket, heard: &Heard, stop: &AtomicBool) {
    let mut buffer = [0; 8];
    while !stop.load(Ordering::Relaxed) {
        let Ok((8, peer)) = socket.recv_from(&mut buffer) else { continue };
        heard.numbers().insert(u64::from_be_bytes(buffer));
        // One that is lost here is missed by the client.
        let _ = socket.send_to(&buffer, peer);
    }
}

fn connections(listener: &TcpListener, heard: &Arc<Heard>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        let heard = Arc::clone(heard);
        thread::spawn(move || {
            // A connection that breaks has brought nothing.
            let _ = connection(stream, &heard);
        });
    }
}

fn connection(mut stream: TcpStream, heard: &Heard) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut number = [0; 8];
    stream.read_exact(&mut number)?;
    heard.numbers().insert(u64::from_be_bytes(number));
    stream.write_all(&number)
}

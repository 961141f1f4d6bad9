//! Servers in pods: what they hear decides what arrived.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use osmia_lab::{Proto, Space, random};

/// How often a server looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);
/// How long what must arrive may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is waited for.
const SILENCE: Duration = Duration::from_millis(400);

/// A server on a port, of both families. It remembers the numbers that it was sent, and sends each back.
pub(crate) struct Server {
    pub(crate) proto: Proto,
    pub(crate) port: u16,
    heard: Arc<Mutex<BTreeSet<u64>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(space: &Space, proto: Proto, port: u16) -> Self {
        let (heard, stop) = (Arc::<Mutex<BTreeSet<u64>>>::default(), Arc::<AtomicBool>::default());
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
        let (hears, told) = (Arc::clone(&heard), Arc::clone(&stop));
        match proto {
            Proto::Udp => {
                let socket = space.run(|| bound(|| UdpSocket::bind(any))).unwrap();
                socket.set_read_timeout(Some(LOOK)).unwrap();
                thread::spawn(move || datagrams(&socket, &hears, &told));
            }
            Proto::Tcp => {
                let listener = space.run(|| bound(|| TcpListener::bind(any))).unwrap();
                listener.set_nonblocking(true).unwrap();
                thread::spawn(move || connections(&listener, &hears, &told));
            }
            Proto::Icmp => panic!("no server of echo requests"),
        }
        Self { proto, port, heard, stop }
    }

    /// How many numbers it heard.
    pub(crate) fn count(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    /// Whether what `from` sends to this server at `address` arrives. What is expected says how long it is waited for.
    pub(crate) fn hears(&self, from: &Space, address: IpAddr, expected: bool) -> bool {
        let number = random();
        let until = Instant::now() + if expected { PATIENCE } else { SILENCE };
        let target = SocketAddr::new(address, self.port);
        // Kept open until it is known whether it arrived.
        let _sent = from.run(|| send(self.proto, target, number, until)).unwrap();
        loop {
            if self.heard.lock().unwrap().contains(&number) {
                return true;
            }
            if Instant::now() > until {
                return false;
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

/// A process that another test has just forked may hold the port of a server before for a moment more.
fn bound<T>(bind: impl Fn() -> std::io::Result<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match bind() {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(LOOK)
            }
            result => return result.unwrap(),
        }
    }
}

fn send(proto: Proto, target: SocketAddr, number: u64, until: Instant) -> Option<OwnedFd> {
    let bytes = number.to_be_bytes();
    if proto == Proto::Udp {
        let any: IpAddr = if target.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        // One that the kernel refuses does not arrive.
        let _ = socket.send_to(&bytes, target);
        return Some(socket.into());
    }
    let left = until.saturating_duration_since(Instant::now());
    let mut stream = TcpStream::connect_timeout(&target, left).ok()?;
    stream.write_all(&bytes).ok()?;
    Some(stream.into())
}

fn datagrams(socket: &UdpSocket, heard: &Mutex<BTreeSet<u64>>, stop: &AtomicBool) {
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        let Ok((8, peer)) = socket.recv_from(&mut buffer) else { continue };
        heard.lock().unwrap().insert(u64::from_be_bytes(*buffer.first_chunk().unwrap()));
        // One that is lost here is missed by the client.
        let _ = socket.send_to(&buffer[..8], peer);
    }
}

fn connections(listener: &TcpListener, heard: &Arc<Mutex<BTreeSet<u64>>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        let heard = Arc::clone(heard);
        thread::spawn(move || {
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut number = [0; 8];
            if stream.read_exact(&mut number).is_ok() {
                heard.lock().unwrap().insert(u64::from_be_bytes(number));
                let _ = stream.write_all(&number);
            }
        });
    }
}

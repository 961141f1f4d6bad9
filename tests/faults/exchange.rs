//! A living flow of datagrams with an answer to each.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use osmia_lab::Space;

const PACE: Duration = Duration::from_millis(2);
/// What is on its way when the asking ends.
const LAST: Duration = Duration::from_millis(300);

/// A client that asks and a server that answers.
pub(crate) struct Exchange {
    pub(crate) client_port: u16,
    pub(crate) server_port: u16,
    stop: Arc<AtomicBool>,
    asking: JoinHandle<u64>,
    hearing: JoinHandle<u64>,
    serving: JoinHandle<Served>,
}

struct Served {
    /// Questions of our own client.
    own: u64,
    /// Anything else.
    others: u64,
}

/// What became of the flow.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) asked: u64,
    /// Questions without an answer.
    pub(crate) missing: u64,
    /// Datagrams at the server that the client never sent.
    pub(crate) strange: u64,
}

impl Exchange {
    /// Between an address inside `from` and one inside `to`.
    pub(crate) fn start((from, client): (&Space, IpAddr), (to, server): (&Space, IpAddr)) -> Self {
        let open = |space: &Space, address: IpAddr| {
            let socket = space.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
            socket.set_read_timeout(Some(LAST)).unwrap();
            socket
        };
        let (client, server) = (open(from, client), open(to, server));
        client.connect(server.local_addr().unwrap()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let serving = thread::spawn(move || serve(&server, &told));
        let (sender, told) = (client.try_clone().unwrap(), Arc::clone(&stop));
        let (client_port, server_port) = (client.local_addr().unwrap().port(), client.peer_addr().unwrap().port());
        let asking = thread::spawn(move || {
            let mut number: u64 = 0;
            while !told.load(Ordering::Relaxed) {
                // One that the kernel refuses is one without an answer.
                let _ = sender.send(&number.to_be_bytes());
                number += 1;
                thread::sleep(PACE);
            }
            number
        });
        let told = Arc::clone(&stop);
        let hearing = thread::spawn(move || hear(&client, &told));
        Self { client_port, server_port, stop, asking, hearing, serving }
    }

    pub(crate) fn finish(self) -> Exchanged {
        self.stop.store(true, Ordering::Relaxed);
        let (asked, answered) = (self.asking.join().unwrap(), self.hearing.join().unwrap());
        let served = self.serving.join().unwrap();
        assert!(served.own >= answered, "more answers than questions");
        Exchanged { asked, missing: asked - answered, strange: served.others }
    }
}

fn serve(socket: &UdpSocket, stop: &AtomicBool) -> Served {
    let (mut served, mut buffer) = (Served { own: 0, others: 0 }, [0; 64]);
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((8, peer)) => {
                served.own += 1;
                // One that is lost here is missed by the client.
                let _ = socket.send_to(&buffer[..8], peer);
            }
            Ok(_) => served.others += 1,
            Err(_) if stop.load(Ordering::Relaxed) => return served,
            Err(_) => {}
        }
    }
}

fn hear(socket: &UdpSocket, stop: &AtomicBool) -> u64 {
    let (mut answers, mut buffer) = (0, [0; 64]);
    loop {
        match socket.recv(&mut buffer) {
            Ok(_) => answers += 1,
            Err(_) if stop.load(Ordering::Relaxed) => return answers,
            Err(_) => {}
        }
    }
}

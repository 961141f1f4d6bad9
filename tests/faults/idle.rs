//! A connection and an exchange of datagrams that say nothing for a while. Nothing but their being established keeps their entries then.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use osmia_lab::Space;

const PATIENCE: Duration = Duration::from_secs(2);

/// Both flows, between the same two places.
pub(crate) struct Idle {
    near: TcpStream,
    far: TcpStream,
    asking: UdpSocket,
    answering: UdpSocket,
}

impl Idle {
    /// From an address inside `from` to one inside `to`.
    pub(crate) fn start((from, client): (&Space, IpAddr), (to, server): (&Space, IpAddr)) -> Self {
        let listener = to.run(|| TcpListener::bind((server, 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let near = from.run(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap().unwrap();
        let far = listener.accept().unwrap().0;
        near.set_nodelay(true).unwrap();
        let socket = |space: &Space, address: IpAddr| space.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
        let (asking, answering) = (socket(from, client), socket(to, server));
        asking.connect(answering.local_addr().unwrap()).unwrap();
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        for socket in [&asking, &answering] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let mut idle = Self { near, far, asking, answering };
        // More than what a flow has to show to be an established one; datagrams also some time later.
        for _ in 0..5 {
            idle.talk().unwrap();
        }
        idle
    }

    /// A byte there and one back, by each.
    pub(crate) fn talk(&mut self) -> std::io::Result<()> {
        let mut byte = [0];
        self.near.write_all(b"?")?;
        self.far.read_exact(&mut byte)?;
        self.far.write_all(b"!")?;
        self.near.read_exact(&mut byte)?;
        self.asking.send(b"?")?;
        let (_, peer) = self.answering.recv_from(&mut byte)?;
        self.answering.send_to(b"!", peer)?;
        self.asking.recv(&mut byte).map(drop)
    }
}

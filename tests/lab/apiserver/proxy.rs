//! A way to an apiserver that can be cut or made to hang, while the apiserver itself goes on.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::space::Space;

/// What becomes of what is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// It passes.
    Passes,
    /// It passes late: so long after it came.
    Late(Duration),
    /// Connections are closed, old and new ones.
    Cut,
}

/// The way.
#[derive(Debug)]
pub struct Proxy {
    state: Arc<Mutex<State>>,
    port: u16,
}

#[derive(Debug)]
struct State {
    traffic: Traffic,
    connections: Vec<TcpStream>,
    /// Connections so far.
    count: usize,
    over: bool,
}

impl Proxy {
    /// Inside `space`, from a free port to port 6443.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn start(space: &Space) -> Result<Self> {
        let state = State { traffic: Traffic::Passes, connections: Vec::new(), count: 0, over: false };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let port = space.run(move || {
            let listener = TcpListener::bind("127.0.0.1:0").context("listen")?;
            let port = listener.local_addr()?.port();
            let accept = move || {
                for client in listener.incoming().flatten() {
                    if lock(&shared).over {
                        return;
                    }
                    // Who cannot be served sees a closed connection.
                    let _ = serve(client, &shared);
                }
            };
            thread::Builder::new().name("proxy".into()).spawn(accept).context("start a thread")?;
            anyhow::Ok(port)
        })??;
        Ok(Self { state, port })
    }

    /// Its address.
    #[must_use]
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// From now on.
    pub fn set(&self, traffic: Traffic) {
        let mut state = lock(&self.state);
        state.traffic = traffic;
        if traffic == Traffic::Cut {
            for connection in state.connections.drain(..) {
                // Fails where it is closed already.
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    }

    /// How many connections were tried so far.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.state).count
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Traffic::Cut);
        // Its thread ends with the next connection, or with the process.
        lock(&self.state).over = true;
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(client: TcpStream, state: &Arc<Mutex<State>>) -> io::Result<()> {
    lock(state).count += 1;
    if lock(state).traffic == Traffic::Cut {
        return Ok(());
    }
    let server = TcpStream::connect("127.0.0.1:6443")?;
    lock(state).connections.extend([client.try_clone()?, server.try_clone()?]);
    for (mut from, mut to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let state = Arc::clone(state);
        thread::Builder::new().name("proxy".into()).spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                let traffic = lock(&state).traffic;
                if let Traffic::Late(by) = traffic {
                    thread::sleep(by);
                }
                if to.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            // Fails where it is closed already.
            let _ = to.shutdown(Shutdown::Both);
        })?;
    }
    Ok(())
}

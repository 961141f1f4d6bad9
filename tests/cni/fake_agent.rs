//! An agent that follows a script: the protocol's other side, with faults at chosen messages.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use osmia_cni::protocol::{Answer, Assignment, AttachmentKey, Failure, Request, frame, handover, host_link_name};

use crate::node::Node;

pub(crate) const GATEWAY_MAC: &str = "02:6f:73:6d:00:01";
pub(crate) const MTU: u32 = 1430;

/// What to do with a message instead of the right thing.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Another answer.
    Say(Answer),
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing, with the connection open.
    Hang,
    /// Close.
    Close,
    /// SIGKILL to the plugin.
    Kill,
}

impl Act {
    pub(crate) fn refuse(code: u32, message: &str) -> Option<Self> {
        Some(Self::Say(Answer::Failed(Failure::new(code, message))))
    }
}

/// What happened, in order.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A message, and the inode of the namespace that came with it.
    Asked(Box<Request>, Option<u64>, Instant),
    /// The plugin closed its connection.
    Closed,
}

struct Shared {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
    records: Mutex<HashMap<AttachmentKey, Assignment>>,
    next: AtomicU8,
    stop: AtomicBool,
    families: Mutex<(bool, bool)>,
}

type Script = dyn Fn(&Request, &Assignment) -> Option<Act> + Send + Sync;

/// A running one; dropped, it listens no more.
pub(crate) struct FakeAgent {
    shared: Arc<Shared>,
    socket: PathBuf,
    accepting: Option<JoinHandle<()>>,
}

impl FakeAgent {
    /// Listens. `script` sees each message with the attachment as it is recorded, and may act otherwise.
    pub(crate) fn start(
        node: &Node,
        script: impl Fn(&Request, &Assignment) -> Option<Act> + Send + Sync + 'static,
    ) -> Self {
        let socket = node.socket();
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::new(Shared {
            events: Mutex::default(),
            changed: Condvar::new(),
            records: Mutex::default(),
            next: AtomicU8::new(1),
            stop: AtomicBool::new(false),
            families: Mutex::new((true, true)),
        });
        let script: Arc<Script> = Arc::new(script);
        let inner = Arc::clone(&shared);
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if inner.stop.load(Ordering::SeqCst) {
                    return;
                }
                let (inner, script) = (Arc::clone(&inner), Arc::clone(&script));
                thread::spawn(move || serve(&inner, &*script, stream.unwrap()));
            }
        });
        Self { shared, socket, accepting: Some(accepting) }
    }

    /// The families that it assigns.
    pub(crate) fn families(&self, v4: bool, v6: bool) {
        *self.shared.families.lock().unwrap() = (v4, v6);
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.shared.events.lock().unwrap().clone()
    }

    /// The messages so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let request = |event| if let Event::Asked(request, ..) = event { Some(*request) } else { None };
        self.events().into_iter().filter_map(request).collect()
    }

    /// Names of the messages so far.
    pub(crate) fn asked(&self) -> Vec<&'static str> {
        self.requests().iter().map(name).collect()
    }

    /// Waits until so many connections were closed by the plugin.
    pub(crate) fn await_closed(&self, count: usize) {
        let closed = |events: &Vec<Event>| events.iter().filter(|e| matches!(e, Event::Closed)).count();
        let events = self.shared.events.lock().unwrap();
        let patience = Duration::from_secs(10);
        let (events, _) = self.shared.changed.wait_timeout_while(events, patience, |e| closed(e) < count).unwrap();
        assert!(closed(&events) >= count, "{events:?}");
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = UnixStream::connect(&self.socket);
        let _ = self.accepting.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.socket);
    }
}

pub(crate) fn name(request: &Request) -> &'static str {
    match request {
        Request::Reserve { .. } => "reserve",
        Request::Commit { .. } => "commit",
        Request::Delete { .. } => "delete",
        Request::Check { .. } => "check",
        Request::Status => "status",
        Request::Collect { .. } => "collect",
    }
}

fn key(request: &Request) -> Option<&AttachmentKey> {
    match request {
        Request::Reserve { key, .. }
        | Request::Commit { key, .. }
        | Request::Delete { key, .. }
        | Request::Check { key } => Some(key),
        Request::Status | Request::Collect { .. } => None,
    }
}

fn serve(shared: &Shared, script: &Script, mut stream: UnixStream) {
    while let Some((request, fd)) = receive(&mut stream) {
        let inode = fd.map(|fd| rustix::fs::fstat(fd).unwrap().st_ino);
        note(shared, Event::Asked(Box::new(request.clone()), inode, Instant::now()));
        let record = record(shared, &request);
        let act = script(&request, &record).unwrap_or_else(|| Act::Say(right(shared, &request, record)));
        match act {
            Act::Say(answer) => drop(frame::write(&mut stream, &answer)),
            Act::Bytes(bytes) => drop(stream.write_all(&bytes)),
            Act::Hang => {}
            Act::Close => return,
            Act::Kill => {
                let pid = rustix::net::sockopt::socket_peercred(&stream).unwrap().pid;
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
    }
    note(shared, Event::Closed);
}

fn note(shared: &Shared, event: Event) {
    shared.events.lock().unwrap().push(event);
    shared.changed.notify_all();
}

/// One message with the descriptor of its first byte.
fn receive(stream: &mut UnixStream) -> Option<(Request, Option<OwnedFd>)> {
    let mut head = [0; 4];
    let (read, fd) = handover::receive(&*stream, &mut head).ok()?;
    if read == 0 {
        return None;
    }
    stream.read_exact(head.get_mut(read..)?).ok()?;
    let mut body = vec![0; frame::length(head).ok()?];
    stream.read_exact(&mut body).ok()?;
    Some((frame::decode(&body).unwrap(), fd))
}

fn record(shared: &Shared, request: &Request) -> Assignment {
    let number = shared.next.fetch_add(1, Ordering::SeqCst);
    let (v4, v6) = *shared.families.lock().unwrap();
    let mut addresses = Vec::new();
    if v4 {
        addresses.push(IpAddr::V4(Ipv4Addr::new(10, 244, 1, number)));
    }
    if v6 {
        addresses.push(IpAddr::V6(Ipv6Addr::new(0xfd00, 0x244, 0, 1, 0, 0, 0, number.into())));
    }
    let fresh = |key: &AttachmentKey| Assignment {
        host_link: host_link_name(key),
        addresses,
        mtu: MTU,
        gateway_mac: GATEWAY_MAC.into(),
        pod_mac: format!("02:00:0a:f4:01:{number:02x}"),
    };
    let any = AttachmentKey::new("none", "none").unwrap();
    let records = shared.records.lock().unwrap();
    let known = key(request).and_then(|k| records.get(k)).cloned();
    known.unwrap_or_else(|| fresh(key(request).unwrap_or(&any)))
}

fn right(shared: &Shared, request: &Request, record: Assignment) -> Answer {
    let mut records = shared.records.lock().unwrap();
    match request {
        Request::Reserve { key, .. } => {
            records.insert(key.clone(), record.clone());
            Answer::Reserved(record)
        }
        Request::Check { key } if records.contains_key(key) => Answer::Attachment(record),
        Request::Check { .. } => Answer::Failed(Failure::new(102, "no record of this attachment: delete the pod")),
        Request::Delete { key, .. } => {
            records.remove(key);
            Answer::Done
        }
        Request::Commit { .. } | Request::Status | Request::Collect { .. } => Answer::Done,
    }
}

//! Connections that live while policies change.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use osmia_lab::{Encap, Proto};

use crate::stage::{Guest, Stage, both};

/// Between two writes.
const PACE: Duration = Duration::from_millis(5);
/// What was sent before a policy was in force has arrived after it.
const UNDER_WAY: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_millis(400);
const ALLOW: &str = "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}";
const DENY: &str = "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress]}";

/// A connection that the client opened and on which one side writes for ever; how much the other side has read.
struct Writing {
    read: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writing {
    fn start(client: &Guest, server: &Guest, v6: bool, server_writes: bool) -> Self {
        let listener = server.space().run(|| TcpListener::bind((server.address(v6), 0))).unwrap().unwrap();
        let target = listener.local_addr().unwrap();
        let opened =
            client.space().run(|| TcpStream::connect_timeout(&target, Duration::from_secs(5))).unwrap().unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let (writer, reader) = if server_writes { (accepted, opened) } else { (opened, accepted) };
        let (read, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (told, count) = (Arc::clone(&stop), Arc::clone(&read));
        writer.set_nonblocking(true).unwrap();
        reader.set_read_timeout(Some(PACE)).unwrap();
        let writing = thread::spawn(move || write(writer, &told));
        let told = Arc::clone(&stop);
        let reading = thread::spawn(move || count_bytes(reader, &count, &told));
        let new = Self { read, stop, threads: vec![writing, reading] };
        new.flows();
        new
    }

    fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// That it goes on.
    fn flows(&self) {
        let before = self.read();
        let on = (0..250).any(|_| {
            thread::sleep(PACE * 4);
            self.read() > before + 100
        });
        assert!(on, "nothing arrives on a connection that is allowed");
    }

    /// That it has ended.
    fn stands(&self, what: &str) {
        thread::sleep(UNDER_WAY);
        let before = self.read();
        thread::sleep(LONG);
        assert_eq!(self.read(), before, "{what} goes on after its permission");
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

#[test]
fn connections_end_with_their_permission_and_replies_do_not_need_one() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("live", &[]);
    let server = stage.pod(0, "live", "server", &[("app", "server")]);
    let (near, far) =
        (stage.pod(0, "live", "near", &[("app", "client")]), stage.pod(1, "live", "far", &[("app", "client")]));
    // The server itself may open nothing; that it answers needs no rule.
    stage.policy("live", "server", ALLOW);
    let mut all = Vec::new();
    for (name, client) in [("near", &near), ("far", &far)] {
        for v6 in [false, true] {
            for server_writes in [false, true] {
                let what = format!("{name}, IPv{}, server writes: {server_writes}", if v6 { 6 } else { 4 });
                all.push((what, Writing::start(client, &server, v6, server_writes)));
            }
        }
    }
    // Policies come and change, these connections are allowed all the time.
    stage.policy(
        "live",
        "more",
        "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}",
    );
    stage.policy("live", "more", "{podSelector: {matchLabels: {app: nobody}}}");
    all.iter().for_each(|(_, writing)| writing.flows());
    stage.policy("live", "server", DENY);
    thread::scope(|scope| {
        for (what, writing) in &all {
            scope.spawn(move || writing.stands(what));
        }
    });
    // Allowed again, they go on: nobody has told the two ends that they were cut.
    stage.policy("live", "server", ALLOW);
    all.iter().for_each(|(_, writing)| writing.flows());
    // The client's label is its permission.
    let mut object = far.object.clone();
    object.labels.clear();
    stage.tell(&object);
    stage.settle();
    for (what, writing) in &all {
        if what.starts_with("far") { writing.stands(what) } else { writing.flows() }
    }
    let client = near.serves(Proto::Tcp, 8080);
    stage.expect("the server opens nothing", both(&near, &client, &[("server", server.space(), false)]));
}

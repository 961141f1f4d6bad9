//! Pods without a plugin: a thread in a network namespace of its own, wired as the plugin wires it, with sockets for the tests.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::space;

type Job = Box<dyn FnOnce() + Send>;

/// MAC of every pod's gateway.
const GATEWAY: &str = "02:6f:73:6d:00:01";

/// A pod. Its namespace ends with the last thread in it.
pub(crate) struct Pod {
    pub(crate) ip: Ipv4Addr,
    /// Host-side ifindex.
    pub(crate) ifindex: u32,
    jobs: Sender<Job>,
}

impl Pod {
    /// Makes one, with its host end in the caller's namespace.
    pub(crate) fn new(name: &str, ip: Ipv4Addr) -> Self {
        let (jobs, queue): (Sender<Job>, Receiver<Job>) = channel();
        let (tell, told) = channel();
        thread::spawn(move || {
            space::own_network();
            tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
            for job in queue {
                job();
            }
        });
        let thread = told.recv().unwrap();
        space::ip(&format!("link add {name} address {GATEWAY} type veth peer name eth0 netns {thread}"));
        space::ip(&format!("link set {name} addrgenmode none up"));
        let pod = Self { ip, ifindex: space::ifindex(name), jobs };
        pod.run(move || {
            space::ip("link set lo up");
            space::ip("link set eth0 up");
            space::ip(&format!("address add {ip}/32 dev eth0"));
            space::ip("route add 169.254.1.1 dev eth0 scope link");
            space::ip("route add default via 169.254.1.1");
            space::ip(&format!("neighbour add 169.254.1.1 lladdr {GATEWAY} dev eth0 nud permanent"));
        });
        pod
    }

    /// Runs something in the pod's namespace and waits for it; threads that it starts stay there.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = channel();
        self.jobs.send(Box::new(move || done.send(job()).unwrap())).unwrap();
        result.recv().expect("the pod's thread panicked")
    }
}

/// Packets that the pods' own sockets and the CPUs' queues had no room for: what a busy machine loses by itself.
pub(crate) fn own_losses(pods: &[&Pod]) -> String {
    let mut text = String::new();
    for pod in pods {
        let counters = pod.run(|| {
            let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
            read("snmp") + &read("netstat")
        });
        let wanted = [
            "RcvbufErrors",
            "ListenOverflows",
            "ListenDrops",
            "TCPBacklogDrop",
            "InErrors",
            "TCPTimeouts",
            "TCPSynRetrans",
            "RetransSegs",
        ];
        let lines: Vec<&str> = counters.lines().collect();
        for pair in lines.chunks(2) {
            let [names, values] = pair else { continue };
            let found = names
                .split_whitespace()
                .zip(values.split_whitespace())
                .filter(|(n, v)| wanted.contains(n) && *v != "0");
            for (name, value) in found {
                text += &format!("{} {name} {value}; ", pod.ip);
            }
        }
    }
    let softnet = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let dropped: Vec<&str> = softnet.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    text + &format!("softnet dropped {dropped:?}")
}

/// Traffic that goes on until it is stopped.
pub(crate) struct Load {
    counts: Arc<Counts>,
    senders: Ends,
    /// Stopped after the senders, so that nothing is refused at the end.
    receivers: Ends,
}

#[derive(Default)]
struct Ends {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Ends {
    fn spawn(&mut self, pod: &Pod, counts: &Arc<Counts>, body: impl FnOnce(&AtomicBool, &Counts) + Send + 'static) {
        let (stop, counts) = (Arc::clone(&self.stop), Arc::clone(counts));
        self.threads.push(pod.run(move || thread::spawn(move || body(&stop, &counts))));
    }

    fn stop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("an end of the traffic panicked");
        }
    }
}

/// What the ends saw.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Datagrams sent, numbered from 0, both ways together.
    pub(crate) sent: AtomicU64,
    /// Different ones that the other end got.
    pub(crate) received: AtomicU64,
    /// Connections that carried a byte there and back.
    pub(crate) connected: AtomicU64,
    /// Connections that failed, or took so long that a packet was lost.
    pub(crate) failed: AtomicU64,
    /// Bytes that the bulk stream's receiver got.
    pub(crate) streamed: AtomicU64,
}

/// A handshake that takes longer has lost a packet: the first retransmission is sent after 1 s.
const SLOW: Duration = Duration::from_millis(900);

impl Load {
    /// 2,000 numbered datagrams a second each way, a connection every 5 ms, one bulk stream.
    pub(crate) fn start(a: &Pod, b: &Pod) -> Self {
        let mut load = Self { counts: Arc::default(), senders: Ends::default(), receivers: Ends::default() };
        load.datagrams(a, b);
        load.datagrams(b, a);
        load.connections(a, b);
        load.stream(a, b);
        load
    }

    fn datagrams(&mut self, from: &Pod, to: &Pod) {
        let target = SocketAddr::from((to.ip, 7000));
        let receiver = to.run(move || UdpSocket::bind(target).unwrap());
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        // A busy machine may keep the receiver from running for seconds: that is no loss on the way.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 16 << 20).unwrap();
        self.receivers.spawn(to, &self.counts, move |stop, counts| {
            let mut seen = Vec::new();
            let mut number = [0; 8];
            // After the stop, until nothing more comes.
            loop {
                match receiver.recv(&mut number) {
                    Ok(_) => {
                        let index = u64::from_be_bytes(number) as usize;
                        if seen.len() <= index {
                            seen.resize(index + 1, false);
                        }
                        if !std::mem::replace(seen.get_mut(index).unwrap(), true) {
                            counts.received.fetch_add(1, Relaxed);
                        }
                    }
                    Err(_) if stop.load(Relaxed) => return,
                    Err(_) => {}
                }
            }
        });
        let source = SocketAddr::from((from.ip, 0));
        self.senders.spawn(from, &self.counts, move |stop, counts| {
            let socket = UdpSocket::bind(source).unwrap();
            let begin = Instant::now();
            for number in 0_u64.. {
                if stop.load(Relaxed) {
                    return;
                }
                socket.send_to(&number.to_be_bytes(), target).unwrap();
                counts.sent.fetch_add(1, Relaxed);
                let due = begin + Duration::from_micros(500) * u32::try_from(number + 1).unwrap();
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
    }

    fn connections(&mut self, from: &Pod, to: &Pod) {
        let target = SocketAddr::from((to.ip, 7001));
        let listener = to.run(move || TcpListener::bind(target).unwrap());
        listener.set_nonblocking(true).unwrap();
        self.receivers.spawn(to, &self.counts, move |stop, _| {
            while !stop.load(Relaxed) {
                match listener.accept() {
                    Ok((mut stream, _)) => {
                        let mut byte = [0];
                        stream.set_nonblocking(false).unwrap();
                        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
                        let _ = stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte));
                    }
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        self.senders.spawn(from, &self.counts, move |stop, counts| {
            while !stop.load(Relaxed) {
                let begin = Instant::now();
                let outcome = TcpStream::connect_timeout(&target, Duration::from_secs(3)).and_then(|mut stream| {
                    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
                    stream.write_all(&[7])?;
                    stream.read_exact(&mut [0])
                });
                match outcome {
                    Ok(()) if begin.elapsed() < SLOW => counts.connected.fetch_add(1, Relaxed),
                    outcome => {
                        eprintln!("connection: {outcome:?} after {:?}", begin.elapsed());
                        counts.failed.fetch_add(1, Relaxed)
                    }
                };
                thread::sleep(Duration::from_millis(5).saturating_sub(begin.elapsed()));
            }
        });
    }

    fn stream(&mut self, from: &Pod, to: &Pod) {
        let target = SocketAddr::from((to.ip, 7002));
        let listener = to.run(move || TcpListener::bind(target).unwrap());
        self.receivers.spawn(to, &self.counts, move |_, counts| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut room = vec![0; 1 << 16];
            while let Ok(length) = stream.read(&mut room) {
                if length == 0 {
                    return;
                }
                counts.streamed.fetch_add(length as u64, Relaxed);
            }
        });
        self.senders.spawn(from, &self.counts, move |stop, _| {
            let mut stream = TcpStream::connect(target).unwrap();
            let bytes = vec![0; 1 << 14];
            // Bounded: the machine is shared.
            while !stop.load(Relaxed) && stream.write_all(&bytes).is_ok() {
                thread::sleep(Duration::from_micros(500));
            }
        });
    }

    /// What was counted up to now.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Stops and waits for what is on its way.
    pub(crate) fn stop(mut self) -> Arc<Counts> {
        self.senders.stop();
        self.receivers.stop();
        Arc::clone(&self.counts)
    }
}

/// A test of this binary as a process of its own, in the caller's namespaces.
pub(crate) fn as_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]).stdout(std::process::Stdio::null());
    command
}

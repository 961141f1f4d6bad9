//! The socket with fakes behind it. What needs a network namespace is tested with the real plugin.

use std::io::Write;

use osmia_cni::protocol::{PodRef, frame};
use tempfile::TempDir;

use super::*;
use crate::attachments::fake::Node;

struct Served {
    folder: TempDir,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    async fn new(node: &Node) -> Self {
        let folder = TempDir::new().unwrap();
        let listener = bind(&folder.path().join("cni.sock")).unwrap();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(serve(listener, node.agent().await, Arc::default(), stopped));
        Self { folder, stop, task }
    }

    /// What the plugin does, on a thread of its own as in life.
    async fn ask(&self, bytes: Vec<u8>) -> Result<Answer, FrameError> {
        let path = self.folder.path().join("cni.sock");
        let call = move || {
            let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
            stream.write_all(&bytes).unwrap();
            frame::read(&mut stream)
        };
        tokio::task::spawn_blocking(call).await.unwrap()
    }
}

fn key(id: &str) -> AttachmentKey {
    AttachmentKey::new(id, "eth0").unwrap()
}

fn code_of(answer: &Answer) -> u32 {
    match answer {
        Answer::Failed(failure) => failure.code,
        _ => 0,
    }
}

#[tokio::test]
async fn calls_are_answered() {
    let node = Node::new();
    let served = Served::new(&node).await;
    let ask = |request: Request| served.ask(frame::encode(&request).unwrap());
    assert_eq!(ask(Request::Delete { key: key("c1"), started_ns: 1 }).await.unwrap(), Answer::Done);
    assert_eq!(ask(Request::Status).await.unwrap(), Answer::Done);
    assert_eq!(ask(Request::Collect { network: "osmia".into(), valid: vec![] }).await.unwrap(), Answer::Done);
    assert_eq!(code_of(&ask(Request::Check { key: key("c1") }).await.unwrap()), code::DIFFERS);
    let commit = Request::Commit { key: key("c1"), pod_mac: "02:00:00:00:00:01".into(), host_ifindex: 1 };
    assert_eq!(code_of(&ask(commit).await.unwrap()), code::TRY_LATER, "nothing was reserved");
    let reserve = Request::Reserve {
        key: key("c1"),
        network: "osmia".into(),
        netns: "/run/netns/x".into(),
        pod: PodRef::default(),
        started_ns: 1,
        deadline_ms: 1000,
        config: serde_json::Value::Null,
    };
    assert_eq!(code_of(&ask(reserve).await.unwrap()), code::INTERNAL, "no namespace came with it");
    assert_eq!(node.kernel.get().rows.len(), 0);
}

#[tokio::test]
async fn another_protocol_is_named_and_nonsense_refused() {
    let node = Node::new();
    let served = Served::new(&node).await;
    let json = br#"{"protocol":99,"body":{"verb":"status"}}"#;
    let mut other = (json.len() as u32).to_be_bytes().to_vec();
    other.extend(json);
    let answer = served.ask(other).await.unwrap();
    assert!(matches!(&answer, Answer::Failed(failure) if failure.message.contains("99")), "{answer:?}");
    for bytes in [vec![0xff; 16], vec![0, 0, 0, 1, b'x']] {
        assert_eq!(code_of(&served.ask(bytes).await.unwrap()), code::DECODE);
    }
    assert_eq!(served.ask(frame::encode(&Request::Status).unwrap()).await.unwrap(), Answer::Done, "it goes on serving");
}

#[tokio::test]
async fn a_new_socket_takes_the_old_ones_place_and_a_stop_closes_it() {
    let node = Node::new();
    let served = Served::new(&node).await;
    let path = served.folder.path().join("cni.sock");
    // What a killed agent leaves.
    let second = bind(&path).unwrap();
    drop(second);
    let _third = bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    served.stop.send(true).unwrap();
    served.task.await.unwrap();
}

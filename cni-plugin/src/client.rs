//! The plugin's side of the connection to the agent, with deadlines: an agent that hangs must not hold the runtime.

use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::protocol::frame::{self, FrameError};
use crate::protocol::{Answer, Failure, Request, handover};
use crate::spec::error::code;

/// Pause between attempts to connect: short against the start of an agent.
const POLL: Duration = Duration::from_millis(20);

/// Why the agent gave no answer. None of these says whether it acted.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody listens.
    #[error("osmia-agent does not listen on {}: {source}", path.display())]
    Away {
        /// The socket.
        path: PathBuf,
        /// What connecting said last.
        source: io::Error,
    },
    /// No answer in time.
    #[error("osmia-agent did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The connection broke, or the other side is of another release.
    #[error("talking to osmia-agent: {0}")]
    Broken(FrameError),
    /// An answer to another question.
    #[error("osmia-agent answered {0}: plugin and agent must come from one release")]
    Unexpected(String),
}

impl AgentError {
    /// An answer that does not fit the question.
    #[must_use]
    pub fn unexpected(answer: &Answer) -> Self {
        let name = match answer {
            Answer::Reserved(_) => "with a reservation",
            Answer::Done => "that it is done",
            Answer::Attachment(_) => "with an attachment",
            Answer::Failed(_) => "with a failure",
        };
        Self::Unexpected(name.to_owned())
    }

    /// As it goes to the runtime: code 11.
    #[must_use]
    pub fn into_failure(self, what: &str) -> Failure {
        let advice = "check that osmia-agent runs on this node and read its log; the runtime may try again";
        Failure::new(code::TRY_LATER, format!("{what}: {self}")).with_details(advice)
    }
}

/// A connection to the agent.
#[derive(Debug)]
pub struct Agent {
    stream: UnixStream,
    opened: Instant,
    deadline: Instant,
}

impl Agent {
    /// Connects. While nobody listens it tries until `listening_by`; while the agent is too busy to accept, and for every answer
    /// later, it waits until `deadline`.
    ///
    /// # Errors
    /// [`AgentError::Away`].
    pub fn connect(path: &Path, listening_by: Instant, deadline: Instant) -> Result<Self, AgentError> {
        let away = |errno: Errno| AgentError::Away { path: path.to_owned(), source: errno.into() };
        let address = SocketAddrUnix::new(path).map_err(away)?;
        let opened = Instant::now();
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(away)?;
            match connect(&socket, &address) {
                Ok(()) => {
                    let stream = UnixStream::from(socket);
                    stream.set_nonblocking(false).map_err(|e| AgentError::Broken(e.into()))?;
                    return Ok(Self { stream, opened, deadline });
                }
                // unix(7): a full backlog is EAGAIN for a non-blocking connect.
                Err(Errno::AGAIN) if Instant::now() < deadline => {}
                Err(Errno::NOENT | Errno::CONNREFUSED) if Instant::now() < listening_by => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(away(errno)),
            }
            thread::sleep(POLL);
        }
    }

    /// Asks and waits for the answer; a descriptor goes with the first byte.
    ///
    /// # Errors
    /// Every one but [`AgentError::Away`]. The connection is of no more use then.
    pub fn ask(&mut self, request: &Request, fd: Option<BorrowedFd<'_>>) -> Result<Answer, AgentError> {
        let frame = frame::encode(request).map_err(AgentError::Broken)?;
        self.exchange(&frame, fd).map_err(|error| match error {
            FrameError::Io(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                AgentError::Silent(self.opened.elapsed())
            }
            other => AgentError::Broken(other),
        })
    }

    fn exchange(&mut self, frame: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<Answer, FrameError> {
        let mut timed = Timed { stream: &self.stream, deadline: self.deadline };
        let mut sent = 0;
        if let Some(fd) = fd {
            timed.stream.set_write_timeout(Some(timed.left()?))?;
            sent = handover::send(timed.stream, frame, fd)?;
        }
        timed.write_all(frame.get(sent..).unwrap_or_default())?;
        frame::read(&mut timed)
    }
}

/// A stream on which every single read and write ends by the deadline.
struct Timed<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        let mut stream = self.stream;
        stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! The only unsafe code of the bench: bpf(2), for programs that are no part of the product and would be wrong in its object.
#![expect(unsafe_code, reason = "bpf(2) has no safe form for programs without an object file")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};

// Commands and constants of linux/bpf.h.
const MAP_CREATE: i32 = 0;
const MAP_LOOKUP_ELEM: i32 = 1;
const PROG_LOAD: i32 = 5;
const OBJ_GET: i32 = 7;
const PROG_TEST_RUN: i32 = 10;
const PROG_GET_FD_BY_ID: i32 = 13;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const LINK_CREATE: i32 = 28;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;
/// Words of `struct __sk_buff`, and the one that is the device's number.
const CONTEXT: usize = 48;
const CONTEXT_IFINDEX: usize = 10;

/// The fields of `union bpf_attr` that a command reads, in its order.
trait Attr {}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    first: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    returned: u32,
    size_in: u32,
    size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
}

#[repr(C)]
#[derive(Default)]
struct ObjGet {
    path: u64,
    fd: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Info {
    fd: u32,
    length: u32,
    info: u64,
}

/// The front of `struct bpf_link_info`.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    zero: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    kind: u32,
    flags: u32,
    relative: u64,
    revision: u64,
}

impl Attr for MapCreate {}
impl Attr for Element {}
impl Attr for ProgLoad {}
impl Attr for TestRun {}
impl Attr for ObjGet {}
impl Attr for ById {}
impl Attr for Info {}
impl Attr for LinkCreate {}

fn bpf<A: Attr>(command: i32, attr: &mut A) -> io::Result<i32> {
    let size = size_of::<A>();
    // SAFETY: `attr` is a prefix of bpf_attr and of the size given; the kernel takes what lies behind it for zero. Every pointer in it
    // comes from a reference that its maker holds over this call, with the length that the kernel reads or writes there.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel just made this descriptor, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn address<T: ?Sized>(at: &T) -> u64 {
    std::ptr::from_ref(at).cast::<u8>() as u64
}

/// An array of one `u64`.
pub(crate) fn counter() -> Result<OwnedFd> {
    let mut attr = MapCreate { kind: MAP_TYPE_ARRAY, key_size: 4, value_size: 8, max_entries: 1, flags: 0 };
    bpf(MAP_CREATE, &mut attr).map(owned).context("create a map")
}

/// Row 0 of an array of `u64`.
pub(crate) fn count(counter: BorrowedFd<'_>) -> Result<u64> {
    let (key, mut value) = (0_u32, 0_u64);
    let value_at = std::ptr::from_mut(&mut value) as u64;
    let mut attr = Element { map: number(counter), key: address(&key), value: value_at, ..Element::default() };
    bpf(MAP_LOOKUP_ELEM, &mut attr).context("read a map")?;
    Ok(value)
}

/// Loads a classifier.
pub(crate) fn load(name: &str, instructions: &[u64]) -> Result<OwnedFd> {
    let license = CString::new("GPL")?;
    let mut log = vec![0_u8; 16 << 10];
    let mut attr = ProgLoad {
        kind: PROG_TYPE_SCHED_CLS,
        instructions: u32::try_from(instructions.len())?,
        first: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 1,
        log_size: u32::try_from(log.len())?,
        log: log.as_mut_ptr() as u64,
        ..ProgLoad::default()
    };
    // The last byte stays zero.
    attr.name.iter_mut().zip(name.bytes().take(15)).for_each(|(to, from)| *to = from);
    bpf(PROG_LOAD, &mut attr).map(owned).with_context(|| {
        let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
        format!("load the program {name}: {}", String::from_utf8_lossy(log.get(..end).unwrap_or_default()))
    })
}

/// Attaches a classifier to the ingress of a device of the calling thread's network; detached when the link is dropped.
pub(crate) fn attach(program: BorrowedFd<'_>, ifindex: u32) -> Result<OwnedFd> {
    let mut attr = LinkCreate { program: number(program), ifindex, kind: TCX_INGRESS, ..LinkCreate::default() };
    bpf(LINK_CREATE, &mut attr).map(owned).context("attach a program by tcx (Linux 6.6 or later)")
}

/// What is pinned at a path of the calling thread's mounts.
pub(crate) fn pinned(path: &Path) -> Result<OwnedFd> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjGet { path: text.as_ptr() as u64, ..ObjGet::default() };
    bpf(OBJ_GET, &mut attr).map(owned).with_context(|| format!("open {}", path.display()))
}

/// The program of a pinned link.
pub(crate) fn program_of_link(path: &Path) -> Result<OwnedFd> {
    let link = pinned(path)?;
    let mut info = LinkInfo::default();
    let length = size_of::<LinkInfo>() as u32;
    let mut attr = Info { fd: number(link.as_fd()), length, info: std::ptr::from_mut(&mut info) as u64 };
    bpf(OBJ_GET_INFO_BY_FD, &mut attr).with_context(|| format!("ask the link {}", path.display()))?;
    let mut attr = ById { id: info.program, ..ById::default() };
    bpf(PROG_GET_FD_BY_ID, &mut attr).map(owned).with_context(|| format!("open the program of {}", path.display()))
}

/// Runs a classifier `repeat` times on one packet, starting with its Ethernet header, that arrives at a device of the calling thread's
/// network; gives what the last run returned.
pub(crate) fn test_run(program: BorrowedFd<'_>, ifindex: u32, packet: &[u8], repeat: u32) -> Result<u32> {
    let mut context = [0_u32; CONTEXT];
    context[CONTEXT_IFINDEX] = ifindex;
    let mut attr = TestRun {
        program: number(program),
        size_in: u32::try_from(packet.len())?,
        data_in: packet.as_ptr() as u64,
        repeat,
        context_size_in: size_of_val(&context) as u32,
        context_in: address(&context),
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut attr).context("run a program for a test")?;
    Ok(attr.returned)
}

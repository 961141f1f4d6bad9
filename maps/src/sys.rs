//! bpf(2), where aya has no call: opening a pin read-only, batches, and the device behind a link. The only unsafe here.
//!
//! Invariant: every pointer handed to the kernel is to a buffer that lives through the call and is as long as the map's key or value
//! (times the count), which [`crate::Table`] checks once when it opens the map.
#![expect(unsafe_code, reason = "bpf(2) takes pointers as numbers; this module is the one place that makes them")]

use std::{
    ffi::CString,
    io,
    mem::size_of_val,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    ptr,
};

use aya::Pod;

/// enum bpf_cmd, linux/bpf.h.
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const MAP_GET_NEXT_KEY: libc::c_long = 4;
const OBJ_GET: libc::c_long = 7;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const MAP_LOOKUP_BATCH: libc::c_long = 24;
const MAP_UPDATE_BATCH: libc::c_long = 26;
const MAP_DELETE_BATCH: libc::c_long = 27;
const LINK_DETACH: libc::c_long = 34;

/// `BPF_F_RDONLY`, linux/bpf.h.
const RDONLY: u32 = 1 << 3;

/// bpf_attr of `OBJ_GET`.
#[repr(C)]
struct ObjAttr {
    pathname: u64,
    bpf_fd: u32,
    file_flags: u32,
}

/// bpf_attr of `OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoAttr {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// bpf_attr of `LINK_DETACH`.
#[repr(C)]
struct LinkAttr {
    link_fd: u32,
}

/// bpf_attr of the calls on one element.
#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    zero: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// bpf_attr of the batch calls (since 5.6).
#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Start of bpf_link_info; for a tcx link the union begins with the ifindex (since 6.6).
#[repr(C)]
#[derive(Default)]
struct RawLinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    zero: u32,
    ifindex: u32,
    attach: u32,
}

/// What the kernel says of a tcx link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkInfo {
    /// Number of the link.
    pub id: u32,
    /// Number of the program that runs there now.
    pub program: u32,
    /// The device, 0 once it is gone (the link is then of no use).
    pub ifindex: u32,
}

fn call<A>(command: libc::c_long, attr: &mut A) -> io::Result<libc::c_long> {
    let size = size_of_val(attr);
    // SAFETY: `attr` is one of the repr(C) structs above, laid out as the command expects, and outlives the call. The kernel reads and
    // writes the buffers that it names; each caller below holds them borrowed for the call's length.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attr), size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn fd_number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr().addr() as u64
}

fn address_mut<T>(slice: &mut [T]) -> u64 {
    slice.as_mut_ptr().expose_provenance() as u64
}

/// Opens a pinned object; read-only if asked, which also works where the pin's mode forbids writing.
pub(crate) fn obj_get(path: &Path, read_only: bool) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = ObjAttr {
        pathname: address(path.as_bytes_with_nul()),
        bpf_fd: 0,
        file_flags: if read_only { RDONLY } else { 0 },
    };
    let fd = call(OBJ_GET, &mut attr)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What a pinned tcx link is attached to. Of a link of another kind the ifindex has no meaning.
///
/// # Errors
/// The kernel's; not found where there is no such pin.
pub fn pinned_link_info(pin: &Path) -> io::Result<LinkInfo> {
    // Links have no read-only descriptors.
    let link = obj_get(pin, false)?;
    let mut info = [RawLinkInfo::default()];
    let mut attr = InfoAttr {
        bpf_fd: fd_number(link.as_fd()),
        info_len: size_of::<RawLinkInfo>() as u32,
        info: address_mut(&mut info),
    };
    call(OBJ_GET_INFO_BY_FD, &mut attr)?;
    let [RawLinkInfo { id, program, ifindex, .. }] = info;
    Ok(LinkInfo { id, program, ifindex })
}

/// Takes a pinned link off its hook (since 5.9): when this returns no packet is in its program any more, while removing the pin alone leaves
/// that to a worker of the kernel. The pin stays.
///
/// # Errors
/// The kernel's; not found where there is no such pin.
pub fn detach_pinned_link(pin: &Path) -> io::Result<()> {
    let link = obj_get(pin, false)?;
    call(LINK_DETACH, &mut LinkAttr { link_fd: fd_number(link.as_fd()) }).map(drop)
}

fn element(map: BorrowedFd<'_>, key: u64, value: u64, flags: u64) -> ElementAttr {
    ElementAttr { map_fd: fd_number(map), zero: 0, key, value, flags }
}

/// Reads the value of a key into `value` (per-CPU maps: one after the other); false if there is none.
pub(crate) fn lookup<K: Pod, V: Pod>(map: BorrowedFd<'_>, key: &K, value: &mut [V]) -> io::Result<bool> {
    let mut attr = element(map, address(std::slice::from_ref(key)), address_mut(value), 0);
    found(call(MAP_LOOKUP_ELEM, &mut attr))
}

/// Writes a value (per-CPU maps: one after the other).
pub(crate) fn update<K: Pod, V: Pod>(map: BorrowedFd<'_>, key: &K, value: &[V]) -> io::Result<()> {
    let (key, value) = (address(std::slice::from_ref(key)), address(value));
    call(MAP_UPDATE_ELEM, &mut element(map, key, value, 0)).map(drop)
}

/// Removes a key; false if it was not there.
pub(crate) fn delete<K: Pod>(map: BorrowedFd<'_>, key: &K) -> io::Result<bool> {
    found(call(MAP_DELETE_ELEM, &mut element(map, address(std::slice::from_ref(key)), 0, 0)))
}

/// The key after `key`, or the first one; false at the end.
pub(crate) fn next_key<K: Pod>(map: BorrowedFd<'_>, key: Option<&K>, next: &mut K) -> io::Result<bool> {
    let key = key.map_or(0, |k| address(std::slice::from_ref(k)));
    found(call(MAP_GET_NEXT_KEY, &mut element(map, key, address_mut(std::slice::from_mut(next)), 0)))
}

fn found(answer: io::Result<libc::c_long>) -> io::Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Outcome of a batch call.
pub(crate) struct Batch {
    /// Elements done, also where it failed.
    pub(crate) done: usize,
    /// How it ended; a lookup ends with ENOENT after its last element.
    pub(crate) end: io::Result<()>,
}

fn batch(command: libc::c_long, attr: &mut BatchAttr) -> Batch {
    let asked = attr.count;
    let end = call(command, attr).map(drop);
    // A call refused before it began (EINVAL, 524) leaves the count as it was asked.
    let refused = end.as_ref().is_err_and(|e| !matches!(e.raw_os_error(), Some(libc::ENOENT | libc::E2BIG)));
    let done = if refused && attr.count == asked { 0 } else { attr.count as usize };
    Batch { done, end }
}

/// Reads up to `keys.len()` elements from `token` on (`None`: from the start) and moves the token. The token is as long as the longer
/// of a key and 8 bytes: hash maps keep a bucket number there, others the last key. A value of the map is `per` of `V`.
pub(crate) fn lookup_batch<K: Pod, V: Pod>(
    map: BorrowedFd<'_>,
    started: bool,
    token: &mut [u8],
    keys: &mut [K],
    values: &mut [V],
    per: usize,
) -> Batch {
    let token = address_mut(token);
    let mut attr = BatchAttr {
        in_batch: if started { token } else { 0 },
        out_batch: token,
        keys: address_mut(keys),
        values: address_mut(values),
        count: keys.len().min(values.len() / per) as u32,
        map_fd: fd_number(map),
        elem_flags: 0,
        flags: 0,
    };
    batch(MAP_LOOKUP_BATCH, &mut attr)
}

/// Writes as many pairs as both slices have.
pub(crate) fn update_batch<K: Pod, V: Pod>(map: BorrowedFd<'_>, keys: &[K], values: &[V]) -> Batch {
    let mut attr = BatchAttr {
        in_batch: 0,
        out_batch: 0,
        keys: address(keys),
        values: address(values),
        count: keys.len().min(values.len()) as u32,
        map_fd: fd_number(map),
        elem_flags: 0,
        flags: 0,
    };
    batch(MAP_UPDATE_BATCH, &mut attr)
}

/// Removes keys; stops with ENOENT at the first one that is not there.
pub(crate) fn delete_batch<K: Pod>(map: BorrowedFd<'_>, keys: &[K]) -> Batch {
    let mut attr = BatchAttr {
        in_batch: 0,
        out_batch: 0,
        keys: address(keys),
        values: 0,
        count: keys.len() as u32,
        map_fd: fd_number(map),
        elem_flags: 0,
        flags: 0,
    };
    batch(MAP_DELETE_BATCH, &mut attr)
}

/// A value of zeros, to be read into.
pub(crate) fn zeroed<T: Pod>() -> T {
    // SAFETY: Pod types are valid for every bit pattern (the contract of `osmia_ebpf::layout`).
    unsafe { std::mem::zeroed() }
}

/// The value that begins with these bytes: what is missing is zero, what is too much is left out.
pub(crate) fn beginning<T: Pod>(bytes: &[u8]) -> T {
    let mut value = zeroed::<T>();
    let length = bytes.len().min(size_of::<T>());
    // SAFETY: `length` bytes can be read and written, the two do not overlap, and Pod types are valid for every bit pattern.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), ptr::from_mut(&mut value).cast::<u8>(), length) };
    value
}

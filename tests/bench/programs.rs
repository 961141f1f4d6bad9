//! The bench's own programs, instruction by instruction: one that counts and drops, one that does nothing, one that looks up.
//!
//! They are no part of the product's object, so that what is measured is the object as it ships.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use osmia_lab::Space;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::sys;

/// `TC_ACT_SHOT`, linux/pkt_cls.h.
const SHOT: i32 = 2;
/// `bpf_map_lookup_elem`.
const LOOKUP: i32 = 1;
/// `bpf_redirect_neigh`.
const REDIRECT_NEIGH: i32 = 152;
/// `bpf_redirect_peer`.
const REDIRECT_PEER: i32 = 155;
/// `AF_INET`.
const INET: i32 = 2;
/// Frame pointer.
const FP: u8 = 10;

// Operation codes (RFC 9669).
const MOV: u8 = 0xb7;
const MOV_REGISTER: u8 = 0xbf;
const ADD: u8 = 0x07;
const STORE_WORD: u8 = 0x62;
const ATOMIC_ADD: u8 = 0xdb;
const JUMP_IF_EQUAL: u8 = 0x15;
const LOAD_64: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// `src` of [`LOAD_64`]: the immediate is a map's descriptor.
const MAP_FD: u8 = 1;

const fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> u64 {
    let registers = (destination & 15) | source << 4;
    code as u64
        | (registers as u64) << 8
        | (offset.cast_unsigned() as u64) << 16
        | (immediate.cast_unsigned() as u64) << 32
}

/// A key on the stack and its row's address in r0.
fn lookup(map: BorrowedFd<'_>, key: &[u8]) -> Vec<u64> {
    let depth = -(key.len() as i16);
    let words = key.as_chunks().0.iter().map(|word| i32::from_ne_bytes(*word));
    let mut code: Vec<_> =
        words.zip(0..).map(|(word, i): (i32, i16)| instruction(STORE_WORD, FP, 0, depth + 4 * i, word)).collect();
    code.extend([
        instruction(MOV_REGISTER, 2, FP, 0, 0),
        instruction(ADD, 2, 0, 0, i32::from(depth)),
        instruction(LOAD_64, 1, MAP_FD, 0, map.as_raw_fd()),
        0,
        instruction(CALL, 0, 0, 0, LOOKUP),
    ]);
    code
}

/// Returns 0.
pub(crate) fn empty() -> Result<OwnedFd> {
    sys::load("bench_empty", &[instruction(MOV, 0, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)])
}

/// Looks up one key, whose length is a multiple of 4; returns 1 if it is there, else 0.
pub(crate) fn looks_up(map: BorrowedFd<'_>, key: &[u8]) -> Result<OwnedFd> {
    let mut code = lookup(map, key);
    code.extend([instruction(JUMP_IF_EQUAL, 0, 0, 1, 0), instruction(MOV, 0, 0, 0, 1), instruction(EXIT, 0, 0, 0, 0)]);
    sys::load("bench_lookup", &code)
}

/// Hands all that arrives at `device` of `space` to the far end of the veth `peer` there, as long as what is given back lives.
pub(crate) fn hand_over(space: &Space, device: &str, peer: &str) -> Result<OwnedFd> {
    space.run(|| {
        let peer = ifindex(peer)?.cast_signed();
        let code = [
            instruction(MOV, 1, 0, 0, peer),
            instruction(MOV, 2, 0, 0, 0),
            instruction(CALL, 0, 0, 0, REDIRECT_PEER),
            instruction(EXIT, 0, 0, 0, 0),
        ];
        sys::attach(sys::load("bench_peer", &code)?.as_fd(), ifindex(device)?)
    })?
}

/// Sends all that arrives at `device` of `space` out of `wire` to a next hop, as long as what is given back lives.
pub(crate) fn send_on(space: &Space, device: &str, wire: &str, next_hop: Ipv4Addr) -> Result<OwnedFd> {
    space.run(|| {
        let wire = ifindex(wire)?.cast_signed();
        let next_hop = i32::from_ne_bytes(next_hop.octets());
        // `struct bpf_redir_neigh`: family, and room for an IPv6 address.
        let mut code: Vec<_> = (0..5).map(|word| instruction(STORE_WORD, FP, 0, -20 + 4 * word, 0)).collect();
        code.extend([
            instruction(STORE_WORD, FP, 0, -20, INET),
            instruction(STORE_WORD, FP, 0, -16, next_hop),
            instruction(MOV, 1, 0, 0, wire),
            instruction(MOV_REGISTER, 2, FP, 0, 0),
            instruction(ADD, 2, 0, 0, -20),
            instruction(MOV, 3, 0, 0, 20),
            instruction(MOV, 4, 0, 0, 0),
            instruction(CALL, 0, 0, 0, REDIRECT_NEIGH),
            instruction(EXIT, 0, 0, 0, 0),
        ]);
        sys::attach(sys::load("bench_neigh", &code)?.as_fd(), ifindex(device)?)
    })?
}

/// Of a device of the calling thread's network.
fn ifindex(device: &str) -> Result<u32> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).context("open a socket")?;
    name_to_index(socket, device).with_context(|| format!("find {device}"))
}

/// Counts and drops all that arrives at a device, before any protocol sees it, as long as it lives.
pub(crate) struct Sink {
    counter: OwnedFd,
    _link: OwnedFd,
}

impl Sink {
    /// At `device` of `space`.
    pub(crate) fn at(space: &Space, device: &str) -> Result<Self> {
        let counter = sys::counter()?;
        let mut code = lookup(counter.as_fd(), &[0; 4]);
        code.extend([
            instruction(JUMP_IF_EQUAL, 0, 0, 2, 0),
            instruction(MOV, 1, 0, 0, 1),
            instruction(ATOMIC_ADD, 0, 1, 0, 0),
            instruction(MOV, 0, 0, 0, SHOT),
            instruction(EXIT, 0, 0, 0, 0),
        ]);
        let program = sys::load("bench_sink", &code)?;
        let link = space.run(|| sys::attach(program.as_fd(), ifindex(device)?))??;
        Ok(Self { counter, _link: link })
    }

    /// Packets so far.
    pub(crate) fn count(&self) -> Result<u64> {
        sys::count(self.counter.as_fd())
    }
}

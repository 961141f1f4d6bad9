//! The packet of a run: [`Packet`] over `__sk_buff`.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::__sk_buff;
use aya_ebpf::programs::TcContext;
use osmia_ebpf::layout::Addr;
use osmia_ebpf::logic::packet::{ETH_LEN, Fib, Packet, Room, TunnelKey, Window, csum};
use osmia_ebpf::logic::{FlowKey, Parsed};

use super::constants::HAVE_CSUM_IPV6;
use super::raw;

/// `BPF_F_RECOMPUTE_CSUM`: a whole-packet checksum from the device follows.
const RECOMPUTE_CSUM: u64 = 1;
/// `BPF_CSUM_LEVEL_DEC`.
const LEVEL_DEC: u64 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// One packet.
pub(super) struct Skb(*mut __sk_buff);

impl Skb {
    /// The packet of this run.
    #[inline(always)]
    pub(super) fn new(ctx: &TcContext) -> Self {
        Self(ctx.as_ptr().cast())
    }
}

#[inline(always)]
fn done(result: i64) -> Option<()> {
    if result == 0 { Some(()) } else { None }
}

impl Packet for Skb {
    #[inline(always)]
    fn length(&self) -> u32 {
        raw::len(self.0)
    }

    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        raw::read(self.0, offset)
    }

    #[inline(always)]
    fn window<const N: usize>(&self, offset: usize) -> Option<impl Window> {
        raw::window::<N>(self.0, offset)
    }

    #[inline(always)]
    fn fill<K: FlowKey, W: Copy>(parsed: &mut Parsed<K>, words: W) {
        raw::fill(&mut parsed.key, words);
        raw::in_memory(parsed);
    }

    #[inline(always)]
    fn write<const N: usize>(&mut self, offset: usize, bytes: &[u8; N]) -> Option<()> {
        // The device's checksum does not cover the Ethernet header.
        done(raw::store(self.0, offset, bytes, if offset >= ETH_LEN { RECOMPUTE_CSUM } else { 0 }))
    }

    #[inline(always)]
    fn replace<const N: usize>(&mut self, offset: usize, bytes: &[u8; N]) -> Option<()> {
        done(raw::store(self.0, offset, bytes, 0))
    }

    #[inline(always)]
    fn replace_address(&mut self, offset: usize, address: &[u8; 16]) -> Option<()> {
        let flags = if HAVE_CSUM_IPV6.load() == 0 { RECOMPUTE_CSUM } else { 0 };
        done(raw::store(self.0, offset, address, flags))
    }

    #[inline(always)]
    fn pull(&mut self, len: u32) -> Option<()> {
        if raw::end(self.0) >= len as usize {
            return Some(());
        }
        done(raw::pull(self.0, len))
    }

    #[inline(always)]
    fn gso_size(&self) -> u32 {
        raw::gso_size(self.0)
    }

    #[inline(always)]
    fn protocol(&self) -> u16 {
        u16::from_be(raw::protocol(self.0) as u16)
    }

    #[inline(always)]
    fn vlan(&self) -> bool {
        raw::vlan_present(self.0) != 0
    }

    #[inline(always)]
    fn mark(&self) -> u32 {
        raw::mark(self.0)
    }

    #[inline(always)]
    fn set_mark(&mut self, mark: u32) {
        raw::set_mark(self.0, mark);
    }

    #[inline(always)]
    fn ifindex(&self) -> u32 {
        raw::ifindex(self.0)
    }

    #[inline(always)]
    fn socket_cookie(&mut self) -> u64 {
        raw::socket_cookie(self.0)
    }

    #[inline(always)]
    fn hash(&mut self) -> u32 {
        raw::hash(self.0)
    }

    #[inline(always)]
    fn random(&mut self) -> u32 {
        raw::random()
    }

    #[inline(always)]
    fn l3_csum_replace(&mut self, offset: usize, from: u32, to: u32, size: u64) -> Option<()> {
        done(raw::l3_csum(self.0, offset, from, to, size))
    }

    #[inline(always)]
    fn l4_csum_replace(&mut self, offset: usize, from: u32, to: u32, flags: u64) -> Option<()> {
        let flags = if HAVE_CSUM_IPV6.load() == 0 { flags & !csum::IPV6 } else { flags };
        done(raw::l4_csum(self.0, offset, from, to, flags))
    }

    #[inline(always)]
    fn adjust_room(&mut self, delta: i32, room: Room, flags: u64) -> Result<(), i64> {
        match raw::adjust_room(self.0, delta, room as u32, flags) {
            0 => Ok(()),
            errno => Err(errno),
        }
    }

    #[inline(always)]
    fn change_tail(&mut self, len: u32) -> Option<()> {
        done(raw::change_tail(self.0, len))
    }

    #[inline(always)]
    fn change_proto(&mut self, ether_type: u16) -> Option<()> {
        done(raw::change_proto(self.0, ether_type.to_be()))
    }

    #[inline(always)]
    fn csum_level_dec(&mut self) -> Option<()> {
        done(raw::csum_level(self.0, LEVEL_DEC))
    }

    #[inline(always)]
    fn set_tunnel_key(&mut self, key: &TunnelKey) -> Option<()> {
        done(raw::set_tunnel_key(self.0, key))
    }

    #[inline(always)]
    fn tunnel_key(&mut self) -> Option<TunnelKey> {
        raw::tunnel_key(self.0)
    }

    #[inline(always)]
    fn fib(&mut self, ifindex: u32, src: &Addr, dst: &Addr) -> Fib {
        raw::fib(self.0, ifindex, src, dst)
    }

    #[inline(always)]
    fn socket_uses(
        &mut self,
        proto: u8,
        local: &Addr,
        local_port: [u8; 2],
        remote: &Addr,
        remote_port: [u8; 2],
    ) -> bool {
        match proto {
            TCP => raw::socket_uses(self.0, false, local, local_port, remote, remote_port),
            UDP => raw::socket_uses(self.0, true, local, local_port, remote, remote_port),
            _ => false,
        }
    }
}

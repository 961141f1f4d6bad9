//! Helpers of the kernel, with the types they mean.

use aya_ebpf::bindings::{
    __sk_buff, BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_NOT_FWDED,
    BPF_FIB_LKUP_RET_SUCCESS, bpf_fib_lookup, bpf_redir_neigh, bpf_redir_neigh__bindgen_ty_1, bpf_sock_tuple,
    bpf_sock_tuple__bindgen_ty_1, bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1,
    bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2, bpf_tunnel_key, bpf_tunnel_key__bindgen_ty_1,
};
use aya_ebpf::btf_maps::ProgramArray;
use aya_ebpf::helpers::generated as helper;
use aya_ebpf::programs::TcContext;
use osmia_ebpf::layout::Addr;
use osmia_ebpf::logic::packet::{Fib, TunnelKey};

/// `AF_INET`, linux/socket.h.
const AF_INET: u8 = 2;
/// `AF_INET6`.
const AF_INET6: u8 = 10;
/// `BPF_F_TUNINFO_IPV6`.
const TUNINFO_IPV6: u64 = 1;
/// `BPF_F_CURRENT_NETNS`.
const CURRENT_NETNS: u64 = u64::MAX;

type Skb = *mut __sk_buff;

macro_rules! ctx {
    ($(#[$doc:meta])* $name:ident, $field:ident) => {
        $(#[$doc])*
        #[inline(always)]
        pub(in crate::kernel) fn $name(skb: Skb) -> u32 {
            // SAFETY: the context is valid for the whole run.
            unsafe { (*skb).$field }
        }
    };
}
ctx!(/// `skb->len`.
    len, len);
ctx!(/// Bytes of payload in a segment, 0 for no GSO.
    gso_size, gso_size);
ctx!(/// 1: a VLAN tag beside the bytes.
    vlan_present, vlan_present);
ctx!(/// The EtherType, network order.
    protocol, protocol);
ctx!(/// The mark.
    mark, mark);
ctx!(/// The device of the hook.
    ifindex, ifindex);

/// Sets the mark.
#[inline(always)]
pub(in crate::kernel) fn set_mark(skb: Skb, mark: u32) {
    // SAFETY: a field of the context that programs may write.
    unsafe { (*skb).mark = mark }
}

/// `bpf_skb_store_bytes`.
#[inline(always)]
pub(in crate::kernel) fn store<const N: usize>(skb: Skb, offset: usize, bytes: &[u8; N], flags: u64) -> i64 {
    // SAFETY: N readable bytes.
    unsafe { helper::bpf_skb_store_bytes(skb, offset as u32, bytes.as_ptr().cast(), N as u32, flags) }
}

/// `bpf_skb_pull_data`.
#[inline(always)]
pub(in crate::kernel) fn pull(skb: Skb, len: u32) -> i64 {
    // SAFETY: the context.
    unsafe { helper::bpf_skb_pull_data(skb, len) }
}

/// `bpf_l3_csum_replace`.
#[inline(always)]
pub(in crate::kernel) fn l3_csum(skb: Skb, offset: usize, from: u32, to: u32, size: u64) -> i64 {
    // SAFETY: the context.
    unsafe { helper::bpf_l3_csum_replace(skb, offset as u32, u64::from(from), u64::from(to), size) }
}

/// `bpf_l4_csum_replace`.
#[inline(always)]
pub(in crate::kernel) fn l4_csum(skb: Skb, offset: usize, from: u32, to: u32, flags: u64) -> i64 {
    // SAFETY: the context.
    unsafe { helper::bpf_l4_csum_replace(skb, offset as u32, u64::from(from), u64::from(to), flags) }
}

/// `bpf_skb_adjust_room`.
#[inline(always)]
pub(in crate::kernel) fn adjust_room(skb: Skb, delta: i32, mode: u32, flags: u64) -> i64 {
    // SAFETY: the context.
    unsafe { helper::bpf_skb_adjust_room(skb, delta, mode, flags) }
}

/// `bpf_skb_change_tail`.
#[inline(always)]
pub(in crate::kernel) fn change_tail(skb: Skb, len: u32) -> i64 {
    // SAFETY: the context.
    unsafe { helper::bpf_skb_change_tail(skb, len, 0) }
}

/// `bpf_skb_change_proto`; the EtherType in network order.
#[inline(always)]
pub(in crate::kernel) fn change_proto(skb: Skb, proto: u16) -> i64 {
    // SAFETY: the context.
    unsafe { helper::bpf_skb_change_proto(skb, proto, 0) }
}

/// `bpf_csum_level`.
#[inline(always)]
pub(in crate::kernel) fn csum_level(skb: Skb, level: u64) -> i64 {
    // SAFETY: the context.
    unsafe { helper::bpf_csum_level(skb, level) }
}

/// `bpf_get_socket_cookie`.
#[inline(always)]
pub(in crate::kernel) fn socket_cookie(skb: Skb) -> u64 {
    // SAFETY: the context.
    unsafe { helper::bpf_get_socket_cookie(skb.cast()) }
}

/// `bpf_get_hash_recalc`.
#[inline(always)]
pub(in crate::kernel) fn hash(skb: Skb) -> u32 {
    // SAFETY: the context.
    unsafe { helper::bpf_get_hash_recalc(skb) }
}

/// `bpf_get_prandom_u32`.
#[inline(always)]
pub(in crate::kernel) fn random() -> u32 {
    // SAFETY: no argument.
    unsafe { helper::bpf_get_prandom_u32() }
}

/// `bpf_jiffies64`, since 5.5; a load on x86.
#[inline(always)]
pub(in crate::kernel) fn jiffies() -> u64 {
    // SAFETY: no argument.
    unsafe { helper::bpf_jiffies64() }
}

/// `bpf_redirect`; the program's result.
#[inline(always)]
pub(in crate::kernel) fn redirect(ifindex: u32, flags: u64) -> i32 {
    // SAFETY: no pointer.
    unsafe { helper::bpf_redirect(ifindex, flags) as i32 }
}

/// `bpf_redirect_peer`, since 5.10.
#[inline(always)]
pub(in crate::kernel) fn redirect_peer(ifindex: u32) -> i32 {
    // SAFETY: no pointer.
    unsafe { helper::bpf_redirect_peer(ifindex, 0) as i32 }
}

/// `bpf_redirect_neigh` with the next hop given, since 5.10.
#[inline(always)]
pub(in crate::kernel) fn redirect_neigh(ifindex: u32, next_hop: &Addr) -> i32 {
    let mut params = if next_hop.is_v4() {
        let [w, ..] = [u32::from_ne_bytes(next_hop.to_v4())];
        bpf_redir_neigh {
            nh_family: u32::from(AF_INET),
            __bindgen_anon_1: bpf_redir_neigh__bindgen_ty_1 { ipv6_nh: [w, 0, 0, 0] },
        }
    } else {
        bpf_redir_neigh {
            nh_family: u32::from(AF_INET6),
            __bindgen_anon_1: bpf_redir_neigh__bindgen_ty_1 { ipv6_nh: words(next_hop) },
        }
    };
    // SAFETY: the struct and its size.
    unsafe { helper::bpf_redirect_neigh(ifindex, &raw mut params, size_of::<bpf_redir_neigh>() as i32, 0) as i32 }
}

/// `bpf_skb_set_tunnel_key`, without UDP checksum over IPv4 (`BPF_F_ZERO_CSUM_TX`).
#[inline(always)]
pub(in crate::kernel) fn set_tunnel_key(skb: Skb, key: &TunnelKey) -> i64 {
    // SAFETY: plain bytes.
    let mut raw: bpf_tunnel_key = unsafe { core::mem::zeroed() };
    raw.tunnel_id = key.vni;
    raw.tunnel_ttl = 64;
    let mut flags = 2;
    if key.remote.is_v4() {
        // This one field is in the machine's order.
        raw.__bindgen_anon_1 = bpf_tunnel_key__bindgen_ty_1 { remote_ipv4: u32::from_be_bytes(key.remote.to_v4()) };
    } else {
        raw.__bindgen_anon_1 = bpf_tunnel_key__bindgen_ty_1 { remote_ipv6: words(&key.remote) };
        flags |= TUNINFO_IPV6;
    }
    // SAFETY: the context, the struct and its size.
    unsafe { helper::bpf_skb_set_tunnel_key(skb, &raw mut raw, size_of::<bpf_tunnel_key>() as u32, flags) }
}

/// `bpf_skb_get_tunnel_key`, of either family.
#[inline(always)]
pub(in crate::kernel) fn tunnel_key(skb: Skb) -> Option<TunnelKey> {
    // SAFETY: plain bytes.
    let mut raw: bpf_tunnel_key = unsafe { core::mem::zeroed() };
    let size = size_of::<bpf_tunnel_key>() as u32;
    // SAFETY: the context, the struct and its size; a family that is not the packet's is refused.
    unsafe {
        if helper::bpf_skb_get_tunnel_key(skb, &raw mut raw, size, 0) == 0 {
            let remote = raw.__bindgen_anon_1.remote_ipv4.to_be_bytes();
            return Some(TunnelKey { vni: raw.tunnel_id, remote: Addr::v4(remote) });
        }
        if helper::bpf_skb_get_tunnel_key(skb, &raw mut raw, size, TUNINFO_IPV6) == 0 {
            return Some(TunnelKey { vni: raw.tunnel_id, remote: address(raw.__bindgen_anon_1.remote_ipv6) });
        }
    }
    None
}

/// `bpf_fib_lookup` from a device with forwarding on.
#[inline(always)]
pub(in crate::kernel) fn fib(skb: Skb, from: u32, src: &Addr, dst: &Addr) -> Fib {
    // SAFETY: plain bytes.
    let mut raw: bpf_fib_lookup = unsafe { core::mem::zeroed() };
    raw.ifindex = from;
    if dst.is_v4() {
        raw.family = AF_INET;
        raw.__bindgen_anon_3.ipv4_src = u32::from_ne_bytes(src.to_v4());
        raw.__bindgen_anon_4.ipv4_dst = u32::from_ne_bytes(dst.to_v4());
    } else {
        raw.family = AF_INET6;
        raw.__bindgen_anon_3.ipv6_src = words(src);
        raw.__bindgen_anon_4.ipv6_dst = words(dst);
    }
    // SAFETY: the context, the struct and its size.
    let result = unsafe { helper::bpf_fib_lookup(skb.cast(), &raw mut raw, size_of::<bpf_fib_lookup>() as i32, 0) };
    match result as u32 {
        // The device is told without a neighbour as well, since 5.10; and for a packet that is too long for it, which the entry's MTU answers.
        BPF_FIB_LKUP_RET_SUCCESS | BPF_FIB_LKUP_RET_NO_NEIGH | BPF_FIB_LKUP_RET_FRAG_NEEDED => {
            // SAFETY: plain bytes, the kernel wrote the next hop over the destination, in the family it says.
            let next_hop = unsafe {
                if raw.family == AF_INET {
                    Addr::v4(raw.__bindgen_anon_4.ipv4_dst.to_ne_bytes())
                } else {
                    address(raw.__bindgen_anon_4.ipv6_dst)
                }
            };
            let next_hop = if next_hop == *dst { Addr::NONE } else { next_hop };
            Fib::Out { ifindex: raw.ifindex, next_hop }
        }
        BPF_FIB_LKUP_RET_NOT_FWDED => Fib::NotForwarded,
        _ => Fib::None,
    }
}

/// Whether a TCP or UDP socket of this namespace would get a packet from `remote` to `local`.
#[inline(always)]
pub(in crate::kernel) fn socket_uses(
    skb: Skb,
    udp: bool,
    local: &Addr,
    local_port: [u8; 2],
    remote: &Addr,
    remote_port: [u8; 2],
) -> bool {
    let (sport, dport) = (u16::from_ne_bytes(remote_port), u16::from_ne_bytes(local_port));
    if local.is_v4() {
        let (saddr, daddr) = (u32::from_ne_bytes(remote.to_v4()), u32::from_ne_bytes(local.to_v4()));
        let ipv4 = bpf_sock_tuple__bindgen_ty_1__bindgen_ty_1 { saddr, daddr, sport, dport };
        let mut tuple = bpf_sock_tuple { __bindgen_anon_1: bpf_sock_tuple__bindgen_ty_1 { ipv4 } };
        socket(skb, udp, &raw mut tuple, size_of_val(&ipv4) as u32)
    } else {
        let ipv6 =
            bpf_sock_tuple__bindgen_ty_1__bindgen_ty_2 { saddr: words(remote), daddr: words(local), sport, dport };
        let mut tuple = bpf_sock_tuple { __bindgen_anon_1: bpf_sock_tuple__bindgen_ty_1 { ipv6 } };
        socket(skb, udp, &raw mut tuple, size_of_val(&ipv6) as u32)
    }
}

#[inline(always)]
fn socket(skb: Skb, udp: bool, tuple: *mut bpf_sock_tuple, size: u32) -> bool {
    // SAFETY: the context, the struct and the size of its family; what is found is released at once.
    unsafe {
        let sock = if udp {
            helper::bpf_sk_lookup_udp(skb.cast(), tuple, size, CURRENT_NETNS, 0)
        } else {
            helper::bpf_skc_lookup_tcp(skb.cast(), tuple, size, CURRENT_NETNS, 0)
        };
        if sock.is_null() {
            return false;
        }
        helper::bpf_sk_release(sock.cast());
    }
    true
}

/// An address in the four words that the kernel's structs have.
#[inline(always)]
fn words(addr: &Addr) -> [u32; 4] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = addr.0;
    [
        u32::from_ne_bytes([a, b, c, d]),
        u32::from_ne_bytes([e, f, g, h]),
        u32::from_ne_bytes([i, j, k, l]),
        u32::from_ne_bytes([m, n, o, p]),
    ]
}

/// The address of four words.
#[inline(always)]
fn address(words: [u32; 4]) -> Addr {
    let [x, y, z, w] = words;
    let ([a, b, c, d], [e, f, g, h]) = (x.to_ne_bytes(), y.to_ne_bytes());
    let ([i, j, k, l], [m, n, o, p]) = (z.to_ne_bytes(), w.to_ne_bytes());
    Addr([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
}

/// `bpf_tail_call`: comes back only where the row is empty.
#[inline(always)]
pub(in crate::kernel) fn tail_call<const N: usize>(table: &ProgramArray<N>, ctx: &TcContext, row: u32) {
    // SAFETY: the context and the map; nothing here needs to be dropped.
    unsafe { table.tail_call(ctx, row) }
}

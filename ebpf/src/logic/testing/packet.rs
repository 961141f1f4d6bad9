//! A packet in a `Vec`, and builders of the usual ones.

use crate::layout::Addr;
use crate::logic::packet::{ETH_IPV4, ETH_IPV6, ETH_LEN, Fib, Packet, Room, TunnelKey, Window, csum};
use crate::logic::{FlowKey, Parsed};

/// A packet of which all but `beyond_linear` bytes at the end are readable.
#[derive(Clone, Debug)]
pub(crate) struct FakePacket {
    pub(crate) bytes: Vec<u8>,
    pub(crate) linear: usize,
    pub(crate) gso_size: u32,
    pub(crate) vlan: bool,
    pub(crate) mark: u32,
    pub(crate) ifindex: u32,
    pub(crate) cookie: u64,
    pub(crate) hash: u32,
    pub(crate) random: u32,
    /// The transport checksum is a partial one: it covers the pseudo header only.
    pub(crate) partial: bool,
    /// What [`Packet::fib`] answers.
    pub(crate) fib: Fib,
    /// Local ports that a socket uses.
    pub(crate) used_ports: Vec<u16>,
    pub(crate) tunnel_key: Option<TunnelKey>,
    /// What [`Packet::adjust_room`] refuses with.
    pub(crate) adjust_error: Option<i64>,
    /// Flags that this kernel does not know: [`Packet::adjust_room`] refuses them with EINVAL.
    pub(crate) unknown_room_flags: u64,
    /// Flags of each [`Packet::adjust_room`].
    pub(crate) adjusted: Vec<(i32, Room, u64)>,
}

impl FakePacket {
    pub(crate) fn new(bytes: Vec<u8>, ifindex: u32) -> Self {
        Self {
            linear: bytes.len(),
            bytes,
            gso_size: 0,
            vlan: false,
            mark: 0,
            ifindex,
            cookie: 0,
            hash: 0x1234_5678,
            random: 7,
            partial: false,
            fib: Fib::None,
            used_ports: Vec::new(),
            tunnel_key: None,
            adjust_error: None,
            unknown_room_flags: 0,
            adjusted: Vec::new(),
        }
    }
}

/// A window.
struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Window for Bytes<N> {
    fn get<const AT: usize, const M: usize>(&self) -> [u8; M] {
        self.0[AT..AT + M].try_into().unwrap()
    }
}

impl Packet for FakePacket {
    fn length(&self) -> u32 {
        self.bytes.len() as u32
    }

    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.bytes.get(..self.linear)?.get(offset..offset + N)?.try_into().ok()
    }

    fn window<const N: usize>(&self, offset: usize) -> Option<impl Window> {
        Some(Bytes::<N>(self.read(offset)?))
    }

    #[expect(unsafe_code, reason = "a key is plain bytes; its fields can not be named here")]
    fn fill<K: FlowKey, W: Copy>(parsed: &mut Parsed<K>, words: W) {
        assert_eq!(size_of::<K>(), size_of::<W>());
        // SAFETY: both are plain bytes of one size.
        unsafe { core::ptr::from_mut(&mut parsed.key).cast::<W>().write_unaligned(words) }
    }

    fn write<const N: usize>(&mut self, offset: usize, bytes: &[u8; N]) -> Option<()> {
        self.bytes.get_mut(offset..offset + N)?.copy_from_slice(bytes);
        Some(())
    }

    fn replace<const N: usize>(&mut self, offset: usize, bytes: &[u8; N]) -> Option<()> {
        self.write(offset, bytes)
    }

    fn replace_address(&mut self, offset: usize, address: &[u8; 16]) -> Option<()> {
        self.write(offset, address)
    }

    fn pull(&mut self, len: u32) -> Option<()> {
        let len = len as usize;
        if len > self.bytes.len() {
            return None;
        }
        self.linear = self.linear.max(len);
        Some(())
    }

    fn gso_size(&self) -> u32 {
        self.gso_size
    }

    fn protocol(&self) -> u16 {
        self.read(12).map_or(0, u16::from_be_bytes)
    }

    fn vlan(&self) -> bool {
        self.vlan
    }

    fn mark(&self) -> u32 {
        self.mark
    }

    fn set_mark(&mut self, mark: u32) {
        self.mark = mark;
    }

    fn ifindex(&self) -> u32 {
        self.ifindex
    }

    fn socket_cookie(&mut self) -> u64 {
        self.cookie
    }

    fn hash(&mut self) -> u32 {
        self.hash
    }

    fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random
    }

    fn l3_csum_replace(&mut self, offset: usize, from: u32, to: u32, size: u64) -> Option<()> {
        let difference = if size == 0 { to } else { difference(from, to) };
        self.patch(offset, difference)
    }

    fn l4_csum_replace(&mut self, offset: usize, from: u32, to: u32, flags: u64) -> Option<()> {
        let old: [u8; 2] = self.bytes.get(offset..offset + 2)?.try_into().ok()?;
        if flags & csum::MARK_MANGLED_0 != 0 && old == [0; 2] {
            return Some(());
        }
        if self.partial && flags & csum::PSEUDO_HDR == 0 {
            return Some(());
        }
        let change = if flags & 0xf == 0 { to } else { difference(from, to) };
        if self.partial {
            // Holds the plain sum of the pseudo header, not its complement.
            let sum = fold(u64::from(u16::from_ne_bytes(old)) + u64::from(change));
            self.bytes[offset..offset + 2].copy_from_slice(&sum.to_ne_bytes());
            return Some(());
        }
        self.patch(offset, change)?;
        if flags & csum::MARK_MANGLED_0 != 0 && self.bytes[offset..offset + 2] == [0; 2] {
            self.bytes[offset..offset + 2].copy_from_slice(&[0xff; 2]);
        }
        Some(())
    }

    fn adjust_room(&mut self, delta: i32, room: Room, flags: u64) -> Result<(), i64> {
        if let Some(error) = self.adjust_error {
            return Err(error);
        }
        if flags & self.unknown_room_flags != 0 {
            return Err(-22);
        }
        self.adjusted.push((delta, room, flags));
        let at = match room {
            Room::Mac => ETH_LEN,
            Room::Net => ETH_LEN + if self.bytes.get(12..14) == Some(&[0x86, 0xdd]) { 40 } else { 20 },
        };
        if delta >= 0 {
            let added = vec![0; delta as usize];
            self.bytes.splice(at..at, added);
        } else {
            let end = at + delta.unsigned_abs() as usize;
            if end > self.bytes.len() {
                return Err(-524);
            }
            self.bytes.drain(at..end);
        }
        self.linear = self.linear.saturating_add_signed(delta as isize).min(self.bytes.len());
        Ok(())
    }

    fn change_tail(&mut self, len: u32) -> Option<()> {
        self.bytes.resize(len as usize, 0);
        self.linear = self.bytes.len();
        self.gso_size = 0;
        Some(())
    }

    fn change_proto(&mut self, ether_type: u16) -> Option<()> {
        let now = u16::from_be_bytes([*self.bytes.get(12)?, *self.bytes.get(13)?]);
        match (now, ether_type) {
            (ETH_IPV4, ETH_IPV6) => drop(self.bytes.splice(ETH_LEN..ETH_LEN, [0; 20])),
            (ETH_IPV6, ETH_IPV4) => drop(self.bytes.drain(ETH_LEN..ETH_LEN + 20)),
            _ => return None,
        }
        self.linear = self.bytes.len();
        Some(())
    }

    fn csum_level_dec(&mut self) -> Option<()> {
        Some(())
    }

    fn set_tunnel_key(&mut self, key: &TunnelKey) -> Option<()> {
        self.tunnel_key = Some(*key);
        Some(())
    }

    fn tunnel_key(&mut self) -> Option<TunnelKey> {
        self.tunnel_key
    }

    fn fib(&mut self, _ifindex: u32, _src: &Addr, _dst: &Addr) -> Fib {
        self.fib
    }

    fn socket_uses(&mut self, _proto: u8, _local: &Addr, local_port: [u8; 2], _remote: &Addr, _port: [u8; 2]) -> bool {
        self.used_ports.contains(&u16::from_be_bytes(local_port))
    }
}

impl FakePacket {
    fn patch(&mut self, offset: usize, difference: u32) -> Option<()> {
        let old: [u8; 2] = self.bytes.get(offset..offset + 2)?.try_into().ok()?;
        let sum = !fold(u64::from(!u16::from_ne_bytes(old)) + u64::from(difference));
        self.bytes[offset..offset + 2].copy_from_slice(&sum.to_ne_bytes());
        Some(())
    }
}

fn difference(from: u32, to: u32) -> u32 {
    let sum = u64::from(!from) + u64::from(to);
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Builders: whole packets with right lengths and checksums.
pub(crate) mod build {
    use super::{ETH_IPV4, ETH_IPV6, fold};

    /// The gateway MAC that the tests use.
    pub(crate) const GATEWAY: [u8; 6] = [2, 0x6f, 0x73, 0x6d, 0, 1];
    /// The pod's MAC.
    pub(crate) const POD: [u8; 6] = [2, 0, 0, 0, 0, 9];

    /// One's complement sum of bytes.
    pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
        let mut sum = 0_u64;
        for part in parts {
            for pair in part.chunks(2) {
                sum += u64::from(u16::from_ne_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            }
        }
        !fold(sum)
    }

    pub(crate) fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::from(GATEWAY);
        bytes.extend(POD);
        bytes.extend(ether_type.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    pub(crate) fn ipv4(src: [u8; 4], dst: [u8; 4], proto: u8, payload: &[u8]) -> Vec<u8> {
        ipv4_with(src, dst, proto, 0, &[], payload)
    }

    /// `fragment` is the flags-and-offset field.
    pub(crate) fn ipv4_with(
        src: [u8; 4],
        dst: [u8; 4],
        proto: u8,
        fragment: u16,
        options: &[u8],
        payload: &[u8],
    ) -> Vec<u8> {
        let header = 20 + options.len();
        let mut ip = vec![0x40 | (header / 4) as u8, 0];
        ip.extend(((header + payload.len()) as u16).to_be_bytes());
        ip.extend([0x12, 0x34]);
        ip.extend(fragment.to_be_bytes());
        ip.extend([64, proto, 0, 0]);
        ip.extend(src);
        ip.extend(dst);
        ip.extend(options);
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_ne_bytes());
        ip.extend(payload);
        ethernet(ETH_IPV4, &ip)
    }

    /// `next` and `payload` include extension headers.
    pub(crate) fn ipv6(src: [u8; 16], dst: [u8; 16], next: u8, payload: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend((payload.len() as u16).to_be_bytes());
        ip.extend([next, 64]);
        ip.extend(src);
        ip.extend(dst);
        ip.extend(payload);
        ethernet(ETH_IPV6, &ip)
    }

    fn pseudo(src: &[u8], dst: &[u8], proto: u8, len: usize) -> Vec<u8> {
        let mut bytes = Vec::from(src);
        bytes.extend(dst);
        bytes.extend([0, proto]);
        bytes.extend((len as u16).to_be_bytes());
        bytes
    }

    pub(crate) fn tcp(src: &[u8], dst: &[u8], sport: u16, dport: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(sport.to_be_bytes());
        tcp.extend(dport.to_be_bytes());
        tcp.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(payload);
        let sum = checksum(&[&pseudo(src, dst, 6, tcp.len()), &tcp]);
        tcp[16..18].copy_from_slice(&sum.to_ne_bytes());
        tcp
    }

    pub(crate) fn udp(src: &[u8], dst: &[u8], sport: u16, dport: u16, payload: &[u8]) -> Vec<u8> {
        let mut udp = Vec::new();
        udp.extend(sport.to_be_bytes());
        udp.extend(dport.to_be_bytes());
        udp.extend(((8 + payload.len()) as u16).to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(payload);
        let sum = checksum(&[&pseudo(src, dst, 17, udp.len()), &udp]);
        udp[6..8].copy_from_slice(&sum.to_ne_bytes());
        udp
    }

    /// ICMP or, with `pseudo_of`, ICMPv6.
    pub(crate) fn icmp(
        kind: u8,
        code: u8,
        rest: [u8; 4],
        payload: &[u8],
        pseudo_of: Option<([u8; 16], [u8; 16])>,
    ) -> Vec<u8> {
        let mut icmp = vec![kind, code, 0, 0];
        icmp.extend(rest);
        icmp.extend(payload);
        let front = pseudo_of.map_or(Vec::new(), |(src, dst)| pseudo(&src, &dst, 58, icmp.len()));
        let sum = checksum(&[&front, &icmp]);
        icmp[2..4].copy_from_slice(&sum.to_ne_bytes());
        icmp
    }
}

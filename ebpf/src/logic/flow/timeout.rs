//! How long an idle direction is kept, by protocol and state.
//!
//! | what | seconds |
//! |---|---|
//! | TCP, handshake not done | 60 |
//! | TCP, established | 21,600 |
//! | TCP, one side has sent FIN (the other may still send) | 120 |
//! | TCP, both have sent FIN | 60 |
//! | TCP, RST seen | 10 |
//! | UDP, no reply yet | 60 |
//! | UDP, replied | 180 |
//! | ICMP and ICMPv6 | 30 |
//! | everything else | 600 |
//!
//! A flow ends when both directions are idle for that long. RST and FIN only shorten: a packet after them lives on for the shorter time.

use super::super::parse::{ICMP, ICMPV6, TCP, UDP};
use crate::layout::flow::{F_REPLIED, T_ESTABLISHED, T_FIN, T_FIN_PEER, T_RST};

/// Seconds of idle time after which a direction is over; `flags` and `tcp` are those of its entry.
#[inline(always)]
#[must_use]
pub const fn seconds(proto: u8, flags: u8, tcp: u8) -> u32 {
    match proto {
        TCP => {
            if tcp & T_RST != 0 {
                10
            } else if tcp & (T_FIN | T_FIN_PEER) == T_FIN | T_FIN_PEER {
                60
            } else if tcp & (T_FIN | T_FIN_PEER) != 0 {
                120
            } else if tcp & T_ESTABLISHED != 0 {
                21_600
            } else {
                60
            }
        }
        UDP if flags & F_REPLIED != 0 => 180,
        UDP => 60,
        ICMP | ICMPV6 => 30,
        _ => 600,
    }
}

/// Whether a direction last seen at `last_seen` is over. Times are ticks; they may wrap between the two.
#[inline(always)]
#[must_use]
pub const fn expired(now: u32, last_seen: u32, seconds: u32, ticks_per_second: u32) -> bool {
    let idle = now.wrapping_sub(last_seen);
    // Another CPU's newer stamp is no age.
    idle < 1 << 31 && idle > seconds.wrapping_mul(ticks_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::flow::T_SYN;

    #[test]
    fn closing_shortens_and_reset_shortens_most() {
        let established = seconds(TCP, 0, T_SYN | T_ESTABLISHED);
        let half = seconds(TCP, 0, T_ESTABLISHED | T_FIN);
        let closed = seconds(TCP, 0, T_ESTABLISHED | T_FIN | T_FIN_PEER);
        let reset = seconds(TCP, 0, T_ESTABLISHED | T_RST);
        assert!(established > half && half > closed && closed > reset, "{established} {half} {closed} {reset}");
        assert_eq!(reset, 10);
    }

    #[test]
    fn time_may_wrap_and_another_cpu_may_be_ahead() {
        assert!(!expired(5, u32::MAX - 5, 60, 64), "11 ticks");
        assert!(!expired(100, 101, 60, 64), "stamped by a CPU that is a tick ahead");
        assert!(!expired(60 * 64, 0, 60, 64));
        assert!(expired(60 * 64 + 1, 0, 60, 64));
    }
}

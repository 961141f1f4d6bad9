//! What policy says of a flow's first packet. Asked when a flow is decided, never for a packet of a known flow.

use super::Judgement;

/// Judges one direction of one endpoint by its rule set.
///
/// Rule set 0: the endpoint is not isolated in this direction. Any other rule set allows what one of its rules allows; layout 1 has no
/// rules, so that an endpoint given a rule set is isolated completely.
#[inline(always)]
#[must_use]
pub const fn judge(rules: u32) -> Judgement {
    match rules {
        0 => Judgement::Allow(0),
        _ => Judgement::Deny(0),
    }
}

//! Whom a policy isolates, in four bytes: there are tens of thousands of policies.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::source::object::Object;

/// Whom a policy isolates: its directions in the lowest two bits, and a print of its selector above them, 0 where it selects every pod.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Whom(u32);

impl Whom {
    pub(super) fn of(object: &Object) -> Self {
        let Object::Policy(_, _, policy) = object else { return Self(0) };
        let directions = u32::from(policy.ingress.is_some()) | u32::from(policy.egress.is_some()) << 1;
        if policy.subject.0.is_empty() {
            return Self(directions);
        }
        let mut hasher = DefaultHasher::new();
        policy.subject.hash(&mut hasher);
        let [.., a, b, c, d] = hasher.finish().to_be_bytes();
        let print = u32::from_be_bytes([a, b, c, d]) & !3;
        Self(print.max(4) | directions)
    }

    /// Whether it isolates all of those, in each direction, as far as it is known.
    pub(super) const fn are_all_of(self, those: Self) -> bool {
        let (selector, directions) = (self.0 & !3, self.0 & 3);
        (selector == 0 || selector == those.0 & !3) && directions & those.0 == those.0 & 3
    }
}

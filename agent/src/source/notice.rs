//! What is said back to where the objects come from.

use osmia_maps::catalogue::PolicyName;

/// Why something is said of a policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// Its rules need more rows than there is room for.
    OverBudget,
    /// Parts of it are what the API would refuse.
    PartRefused,
    /// It came or changed, and that could not be brought into force.
    ChangeFailed,
    /// It came or changed, and was in force late.
    ChangeSlow,
}

/// Something to say of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Why.
    pub reason: Reason,
    /// The policy.
    pub policy: PolicyName,
    /// In a sentence.
    pub note: String,
}

impl Reason {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::OverBudget, Self::PartRefused, Self::ChangeFailed, Self::ChangeSlow];

    /// As an Event has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OverBudget => "PolicyOverBudget",
            Self::PartRefused => "PolicyPartRefused",
            Self::ChangeFailed => "PolicyChangeFailed",
            Self::ChangeSlow => "PolicyChangeSlow",
        }
    }
}

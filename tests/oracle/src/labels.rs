//! Label selectors (meta/v1 LabelSelector).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

pub(crate) type Labels = BTreeMap<String, String>;

/// Of an object without.
pub(crate) static NONE: Labels = Labels::new();

/// "The result of matchLabels and matchExpressions are ANDed. An empty label selector matches all objects."
pub(crate) fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal && selector.match_expressions.iter().flatten().all(|requirement| holds(requirement, labels))
}

/// "operator represents a key's relationship to a set of values." An unknown one, or one whose values the API would refuse, holds for
/// nothing.
fn holds(requirement: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let value = labels.get(&requirement.key);
    let values = requirement.values.clone().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" => !values.is_empty() && value.is_some_and(|value| values.contains(value)),
        // A missing key is not in any set.
        "NotIn" => !values.is_empty() && !value.is_some_and(|value| values.contains(value)),
        "Exists" => values.is_empty() && value.is_some(),
        "DoesNotExist" => values.is_empty() && value.is_none(),
        _ => false,
    }
}

//! LabelSelector.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::{Requirement, Selector, Sorted};

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawSelector {
    #[serde(default)]
    match_labels: Option<BTreeMap<Box<str>, Box<str>>>,
    #[serde(default)]
    match_expressions: Option<Vec<Expression>>,
}

#[derive(Deserialize)]
struct Expression {
    key: Box<str>,
    operator: String,
    #[serde(default)]
    values: Option<Sorted<Box<str>>>,
}

impl RawSelector {
    /// # Errors
    /// An expression that the API would refuse.
    pub(super) fn fold(self) -> Result<Selector, String> {
        let equal = self.match_labels.unwrap_or_default().into_iter();
        let equal = equal.map(|(key, value)| Ok(Requirement::In(key, Sorted::from_iter([value]))));
        let expressions = self.match_expressions.unwrap_or_default().into_iter().map(Expression::fold);
        equal.chain(expressions).collect::<Result<_, _>>().map(Selector)
    }
}

impl Expression {
    fn fold(self) -> Result<Requirement, String> {
        let Self { key, operator, values } = self;
        let values = values.unwrap_or_default();
        match (operator.as_str(), values.is_empty()) {
            ("In", false) => Ok(Requirement::In(key, values)),
            ("NotIn", false) => Ok(Requirement::NotIn(key, values)),
            ("Exists", true) => Ok(Requirement::Exists(key)),
            ("DoesNotExist", true) => Ok(Requirement::DoesNotExist(key)),
            ("In" | "NotIn", true) => Err(format!("operator {operator} of key {key:?} needs values")),
            ("Exists" | "DoesNotExist", false) => Err(format!("operator {operator} of key {key:?} takes no values")),
            _ => Err(format!("operator {operator:?} of key {key:?} is none of In, NotIn, Exists, DoesNotExist")),
        }
    }
}

//! Namespace: labels.

use std::sync::Arc;

use serde::Deserialize;

use super::Metadata;
use crate::model::NamespaceObject;

/// The label that the apiserver sets on each namespace to its name; a manifest does without.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

#[derive(Deserialize)]
pub(super) struct Raw {
    metadata: Metadata,
}

impl Raw {
    pub(super) fn fold(self) -> (String, NamespaceObject) {
        let Metadata { name, labels, .. } = self.metadata;
        let labels = labels.unwrap_or_default();
        let told = labels.iter().map(|(key, value)| (key.into(), value.into()));
        let labels = told.chain([(NAME_LABEL.into(), name.as_str().into())]).collect();
        (name, NamespaceObject { labels: Arc::new(labels) })
    }
}

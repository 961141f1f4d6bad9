//! What the source's events mean to policy.

use crate::{compile::policy::Touched, model::Event};

/// What an event is about.
pub(super) enum About {
    /// A node, of which no policy speaks.
    Node,
    /// All of a kind.
    Kind,
    /// What policies speak of.
    Policy(Touched),
}

pub(super) fn about(event: &Event) -> About {
    match event {
        Event::Node(..) | Event::NodeGone(_) => About::Node,
        Event::Remembered(_) | Event::Told(_) => About::Kind,
        Event::Namespace(name, _) | Event::NamespaceGone(name) => About::Policy(Touched::Namespace(name.clone())),
        Event::Pod(key, _) | Event::PodGone(key) => About::Policy(Touched::Pod(key.clone())),
        Event::Policy(key, _) | Event::PolicyGone(key) => About::Policy(Touched::Policy(key.clone())),
    }
}

/// As a metric says it.
pub(super) fn kind(event: &Event) -> &'static str {
    match event {
        Event::Node(..) | Event::NodeGone(_) => "node",
        Event::Namespace(..) | Event::NamespaceGone(_) => "namespace",
        Event::Pod(..) | Event::PodGone(_) => "pod",
        Event::Policy(..) | Event::PolicyGone(_) => "policy",
        Event::Remembered(_) | Event::Told(_) => "all",
    }
}

//! What the source's events mean to policy.

use super::Touched;
use crate::model::Event;

/// What an event is about.
#[derive(Debug)]
pub enum About {
    /// A node, of which no policy speaks.
    Node,
    /// All of a kind.
    Kind,
    /// What policies speak of, and its kind as a metric says it.
    Policy(Touched, &'static str),
}

/// What an event is about.
#[must_use]
pub fn about(event: &Event) -> About {
    match event {
        Event::Node(..) | Event::NodeGone(_) => About::Node,
        Event::Remembered(_) | Event::Told(_) => About::Kind,
        Event::Namespace(name, _) | Event::NamespaceGone(name) => {
            About::Policy(Touched::Namespace(name.clone()), "namespace")
        }
        Event::Pod(key, _) | Event::PodGone(key) | Event::Early(key) => About::Policy(Touched::Pod(key.clone()), "pod"),
        Event::Policy(key, _) | Event::PolicyGone(key) => About::Policy(Touched::Policy(key.clone()), "policy"),
    }
}

//! What the source's events mean to policy.

use super::Local;
use crate::model::{Event, Name};

/// What an update is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Touched {
    /// The cluster's Pod of this name.
    Pod(Name),
    /// The cluster's Namespace.
    Namespace(String),
    /// The cluster's NetworkPolicy.
    Policy(Name),
    /// The endpoint in a slot is this one now, or none.
    Endpoint(u32, Option<Local>),
}

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
        Event::Policy(key, _) | Event::PolicyGone(key) | Event::Waits(key, _) => {
            About::Policy(Touched::Policy(key.clone()), "policy")
        }
    }
}

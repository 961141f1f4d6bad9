//! An object of Kubernetes as a source reads it: of each kind only the fields that matter, folded into the model's types on arrival.
//!
//! Invariant: what has the wrong type, or cannot be folded without guessing, is an error for who wrote it; a part of a policy that the API
//! would refuse is kept in its place as one that allows nothing, and said when it is read, which is when it comes or changes.

mod namespace;
mod node;
mod pod;
mod policy;
mod selector;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::model::{Event, Name, NamespaceObject, NodeObject, PodObject, PolicyObject};

/// An object by kind and name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Object {
    /// A Node by name.
    Node(String, NodeObject),
    /// A Namespace by name.
    Namespace(String, NamespaceObject),
    /// A Pod by namespace and name.
    Pod(String, String, PodObject),
    /// A NetworkPolicy by namespace and name.
    Policy(String, String, PolicyObject),
}

/// Which object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Key {
    /// A Node by name.
    Node(String),
    /// A Namespace by name.
    Namespace(String),
    /// A Pod.
    Pod(Name),
    /// A NetworkPolicy.
    Policy(Name),
}

impl Key {
    /// Of an object.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        match object {
            Object::Node(name, _) => Self::Node(name.clone()),
            Object::Namespace(name, _) => Self::Namespace(name.clone()),
            Object::Pod(namespace, name, _) => Self::Pod(Name::new(namespace, name)),
            Object::Policy(namespace, name, _) => Self::Policy(Name::new(namespace, name)),
        }
    }

    /// It is gone.
    #[must_use]
    pub fn gone(self) -> Event {
        match self {
            Self::Node(name) => Event::NodeGone(name),
            Self::Namespace(name) => Event::NamespaceGone(name),
            Self::Pod(name) => Event::PodGone(name),
            Self::Policy(name) => Event::PolicyGone(name),
        }
    }
}

/// One object's text, in whatever form.
pub trait Text {
    /// Why it cannot be read.
    type Error: From<String>;

    /// Reads it as `T`, which may be done again for another type.
    ///
    /// # Errors
    /// A field is missing or of another type.
    fn read<T: DeserializeOwned>(&self) -> Result<T, Self::Error>;
}

impl Object {
    /// It is there and looks like this. Its key's name is the event's too, where `key` is its own.
    #[must_use]
    pub fn told(self, key: &Key) -> Event {
        match (self, key) {
            (Self::Node(name, node), _) => Event::Node(name, node),
            (Self::Namespace(name, namespace), _) => Event::Namespace(name, namespace),
            (Self::Pod(_, _, pod), Key::Pod(name)) => Event::Pod(Name::clone(name), pod),
            (Self::Pod(namespace, name, pod), _) => Event::Pod(Name::from((namespace, name)), pod),
            (Self::Policy(_, _, policy), Key::Policy(name)) => Event::Policy(Name::clone(name), policy),
            (Self::Policy(namespace, name, policy), _) => Event::Policy(Name::from((namespace, name)), policy),
        }
    }

    /// Reads an object of `kind`; `None` for a kind that does not matter here.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read<X: Text>(kind: &str, text: &X) -> Result<Option<Self>, X::Error> {
        let object = match kind {
            "Node" => {
                let raw: node::Raw = text.read()?;
                Self::Node(raw.metadata.name.clone(), raw.fold()?)
            }
            "Namespace" => {
                let raw: namespace::Raw = text.read()?;
                let (name, object) = raw.fold();
                Self::Namespace(name, object)
            }
            "Pod" => {
                let raw: pod::Raw = text.read()?;
                let (namespace, name) = raw.metadata.key();
                Self::Pod(namespace, name, raw.fold()?)
            }
            "NetworkPolicy" => {
                let raw: policy::Raw = text.read()?;
                let (namespace, name) = raw.metadata.key();
                let policy = raw.fold();
                if !policy.refused.is_empty() {
                    let why = policy.refused.join("; ");
                    tracing::warn!(
                        policy = format!("{namespace}/{name}"),
                        why,
                        "the API would refuse parts of it: they allow nothing, the rest counts"
                    );
                }
                Self::Policy(namespace, name, policy)
            }
            other => {
                tracing::debug!(kind = other, "skipped a kind that is not read");
                return Ok(None);
            }
        };
        Ok(Some(object))
    }
}

/// `metadata`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    creation_timestamp: Option<jiff::Timestamp>,
    #[serde(default)]
    labels: Option<crate::model::Labels>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

/// The one annotation that matters here.
#[derive(Deserialize)]
struct Annotations {
    /// Of a static pod's object at the API: the uid by which kubelet and runtime know the pod (kubelet's `mirror_client.go`).
    #[serde(default, rename = "kubernetes.io/config.mirror")]
    mirror: Option<String>,
}

impl Metadata {
    /// Namespace and name; a manifest without namespace means "default", as kubectl has it.
    fn key(&self) -> (String, String) {
        (self.namespace.clone().unwrap_or_else(|| "default".to_owned()), self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::source::logged::logged;

    struct Json(Value);

    impl Text for Json {
        type Error = String;

        fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
            serde_json::from_value(self.0.clone()).map_err(|error| error.to_string())
        }
    }

    /// What is logged while this policy is read.
    fn said(spec: Value) -> String {
        let policy = Json(json!({"metadata": {"namespace": "a", "name": "p"}, "spec": spec}));
        logged(|| drop(Object::read("NetworkPolicy", &policy).unwrap()))
    }

    #[test]
    fn a_static_pod_has_the_uid_that_its_runtime_says() {
        let uid = |annotations: Value| {
            let metadata = json!({"namespace": "a", "name": "p", "uid": "api", "annotations": annotations});
            match Object::read("Pod", &Json(json!({"metadata": metadata}))).unwrap() {
                Some(Object::Pod(_, _, pod)) => pod.uid.to_string(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(uid(json!({"note": "x"})), "api");
        assert_eq!(
            uid(json!({"kubernetes.io/config.mirror": "runtime", "kubernetes.io/config.source": "file"})),
            "runtime"
        );
    }

    #[test]
    fn parts_of_a_policy_that_are_refused_are_said() {
        assert_eq!(said(json!({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]})), "");
        let text = said(json!({"ingress": [{"from": [{"ipBlock": {"cidr": "x"}}], "ports": [{"port": 0}]}]}));
        for part in ["WARN", "a/p", "spec.ingress[0].from[0]: \"x\"", "spec.ingress[0].ports[0]: port 0"] {
            assert!(text.contains(&part.replace('"', "\\\"")) || text.contains(part), "{part}: {text}");
        }
    }
}

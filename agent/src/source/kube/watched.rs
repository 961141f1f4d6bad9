//! The kinds that are watched, and an object as the watch hands it over: folded while it is read, with nothing of the rest kept.

use std::{borrow::Cow, marker::PhantomData};

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::value::RawValue;

use crate::{
    model::Name,
    source::object::{Key, Object, Text},
};

/// A kind.
pub(super) trait Kind: Clone + std::fmt::Debug + Send + Sync + 'static {
    const KIND: &'static str;
    const GROUP: &'static str;
    const PLURAL: &'static str;
    type Scope;
    fn key(namespace: &str, name: &str) -> Key;
}

macro_rules! kind {
    ($name:ident, $kind:literal, $group:literal, $plural:literal, $scope:ty, $key:expr) => {
        #[derive(Clone, Debug)]
        pub(super) enum $name {}

        impl Kind for $name {
            const KIND: &'static str = $kind;
            const GROUP: &'static str = $group;
            const PLURAL: &'static str = $plural;
            type Scope = $scope;

            fn key(namespace: &str, name: &str) -> Key {
                let key: fn(&str, &str) -> Key = $key;
                key(namespace, name)
            }
        }
    };
}

kind!(Node, "Node", "", "nodes", ClusterResourceScope, |_, name| Key::Node(name.to_owned()));
kind!(Namespace, "Namespace", "", "namespaces", ClusterResourceScope, |_, name| Key::Namespace(name.to_owned()));
kind!(Pod, "Pod", "", "pods", NamespaceResourceScope, |namespace, name| Key::Pod(Name::new(namespace, name)));
kind!(Policy, "NetworkPolicy", "networking.k8s.io", "networkpolicies", NamespaceResourceScope, |namespace, name| {
    Key::Policy(Name::new(namespace, name))
});

/// An object of kind `K`.
#[derive(Clone, Debug)]
pub(super) struct Watched<K> {
    /// Name, namespace and version alone.
    metadata: ObjectMeta,
    /// What it says, or why it cannot be read.
    pub(super) said: Result<Object, String>,
    kind: PhantomData<K>,
}

impl<K: Kind> Watched<K> {
    pub(super) fn key(&self) -> Key {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        K::key(namespace, self.metadata.name.as_deref().unwrap_or_default())
    }
}

impl<K: Kind> Resource for Watched<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        K::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What the watch itself needs to know of an object.
#[derive(Deserialize)]
struct Head {
    metadata: HeadMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMetadata {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
}

/// The object's JSON.
struct Json<'a>(&'a str);

impl Text for Json<'_> {
    type Error = String;

    fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_str(self.0).map_err(|error| error.to_string())
    }
}

impl<'de, K: Kind> Deserialize<'de> for Watched<K> {
    /// Fails only for what has no name: an object that cannot be read is one that says so, and stops no watch.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let head: Head = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let said = match Object::read(K::KIND, &Json(text.get())) {
            Ok(Some(object)) => Ok(object),
            Ok(None) => Err(format!("{} is no kind that is read", K::KIND)),
            Err(why) => Err(why),
        };
        let HeadMetadata { name, namespace, resource_version } = head.metadata;
        let metadata = ObjectMeta { name: Some(name), namespace, resource_version, ..ObjectMeta::default() };
        Ok(Self { metadata, said, kind: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;

    use super::*;

    #[test]
    fn an_object_that_cannot_be_read_stops_no_watch() {
        let line = |ip: &str| {
            format!(
                r#"{{"type":"ADDED","object":{{"kind":"Pod","metadata":{{"name":"p","namespace":"n","resourceVersion":"7"}},"status":{{"podIPs":[{{"ip":"{ip}"}}]}}}}}}"#
            )
        };
        let read = |text: &str| match serde_json::from_str::<WatchEvent<Watched<Pod>>>(text).unwrap() {
            WatchEvent::Added(pod) => pod,
            other => panic!("{other:?}"),
        };
        let good = read(&line("10.0.0.1"));
        assert!(matches!(good.said, Ok(Object::Pod(_, _, pod)) if pod.ips.len() == 1));
        let bad = read(&line("10.0.0"));
        assert_eq!((bad.key(), bad.meta().resource_version.as_deref()), (Key::Pod(Name::new("n", "p")), Some("7")));
        assert!(bad.said.unwrap_err().contains("line 1"));
    }
}

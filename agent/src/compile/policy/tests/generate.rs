//! Random clusters, as a source tells them.

pub(super) use osmia_oracle::stories::{Happening, addresses, happening, story};
use osmia_oracle::{Endpoint, stories::Objects};

use super::super::*;
use crate::{
    model::{Event, Name},
    source::{folder::manifest, object::Object},
};

/// The objects as they stand.
#[derive(Clone, Default)]
pub(super) struct World(Objects);

impl World {
    pub(super) fn locals(&self) -> BTreeMap<u32, Local> {
        self.0.added().iter().map(|pod| (pod + 1, self.local(*pod))).collect()
    }

    fn local(&self, pod: u32) -> Local {
        let Endpoint { pod, addresses } = self.0.endpoint(pod);
        Local { pod, addresses, ..Local::default() }
    }

    /// For the oracle.
    pub(super) fn world(&self) -> osmia_oracle::World {
        self.0.world()
    }

    /// What a list of the objects of `now` tells who believes these.
    pub(super) fn relist(&self, now: &Self) -> Vec<Happening> {
        self.0.relist(&now.0)
    }

    /// Makes it happen, to the cluster as a source would tell it.
    pub(super) fn apply(&mut self, happening: &Happening, cluster: &mut Cluster) -> Vec<Touched> {
        self.0.apply(happening);
        let (event, touched) = match happening {
            Happening::Added(pod) | Happening::AddedUnnamed(pod) => {
                return vec![Touched::Endpoint(pod + 1, Some(self.local(*pod)))];
            }
            Happening::Deleted(pod) => return vec![Touched::Endpoint(pod + 1, None)],
            Happening::Is(object) => {
                let read = manifest::parse(&object.to_string()).unwrap();
                match read.into_iter().next().unwrap() {
                    Object::Namespace(name, namespace) => {
                        (Event::Namespace(name.clone(), namespace), Touched::Namespace(name))
                    }
                    Object::Pod(namespace, name, pod) => {
                        let key = Name::new((namespace, name));
                        (Event::Pod(Name::clone(&key), pod), Touched::Pod(key))
                    }
                    Object::Policy(namespace, name, policy) => {
                        let key = Name::new((namespace, name));
                        (Event::Policy(Name::clone(&key), policy), Touched::Policy(key))
                    }
                    Object::Node(..) => unreachable!("no story has nodes"),
                }
            }
            Happening::Gone(kind, namespace, name) => {
                let key = Name::new((namespace.clone(), name.clone()));
                match *kind {
                    "Namespace" => (Event::NamespaceGone(name.clone()), Touched::Namespace(name.clone())),
                    "Pod" => (Event::PodGone(key.clone()), Touched::Pod(key)),
                    _ => (Event::PolicyGone(key.clone()), Touched::Policy(key)),
                }
            }
        };
        cluster.apply(event);
        vec![touched]
    }
}

//! Random clusters, as a source tells them.

pub(super) use osmia_oracle::stories::{Happening, addresses, happening, story};
use osmia_oracle::{Endpoint, stories::Objects};

use super::super::*;
use crate::{
    model::{Event, Name},
    source::{folder::manifest, object::Key},
};

/// The objects as they stand.
#[derive(Clone, Default)]
pub(super) struct World(Objects);

impl World {
    pub(super) fn locals(&self) -> BTreeMap<u32, Local> {
        self.0.added().iter().map(|pod| (pod + 1, self.local(*pod))).collect()
    }

    fn local(&self, pod: u32) -> Local {
        let Endpoint { pod, uid, addresses } = self.0.endpoint(pod);
        Local { pod: pod.map(Name::from), uid: uid.unwrap_or_default(), addresses }
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
        let event = match happening {
            Happening::Added(pod, _) | Happening::AddedUnnamed(pod) => {
                return vec![Touched::Endpoint(pod + 1, Some(self.local(*pod)))];
            }
            Happening::Deleted(pod) => return vec![Touched::Endpoint(pod + 1, None)],
            Happening::Is(object) => {
                let object = manifest::parse(&object.to_string()).unwrap().pop().unwrap();
                let key = Key::of(&object);
                object.told(&key)
            }
            Happening::Gone("Namespace", _, name) => Event::NamespaceGone(name.clone()),
            Happening::Gone("Pod", namespace, name) => Event::PodGone(Name::new(namespace, name)),
            Happening::Gone(_, namespace, name) => Event::PolicyGone(Name::new(namespace, name)),
        };
        let About::Policy(touched, _) = about(&event) else { unreachable!("no story has nodes") };
        cluster.apply(event);
        vec![touched]
    }
}

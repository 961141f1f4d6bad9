//! What each file said last, and how the files of a folder fold into objects.
//!
//! Invariant: an object's fields come from all files that hold it, in the order manifests by name, then status files by name; a later
//! file's set fields win. Which pod it is the manifests say: a status file with another uid is of another pod of the name, and left out. A file that turned bad keeps the objects it had. A pod of which only status files speak is none yet: it would
//! seem to have no labels, so that no policy selects it, where in truth nobody has told them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::manifest::Refused;
use crate::{
    model::{Event, Name, NodeObject, PodObject, Uid},
    source::object::{Key, Object},
};

/// A file by where it lies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileId {
    /// In `DIR/status`, not in `DIR`; those come later.
    pub status: bool,
    /// File name.
    pub name: String,
}

impl std::fmt::Display for FileId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.status { "status/" } else { "" }, self.name)
    }
}

/// All files.
#[derive(Default)]
pub struct Files {
    objects: BTreeMap<FileId, Vec<Object>>,
    holders: BTreeMap<Key, BTreeSet<FileId>>,
    bad: BTreeMap<FileId, Refused>,
}

impl Files {
    /// A file has these objects now; what changed by that.
    pub fn set(&mut self, file: &FileId, objects: Vec<Object>) -> Vec<Event> {
        self.bad.remove(file);
        let before = self.objects.get(file).into_iter().flatten().map(Key::of);
        let touched: BTreeSet<Key> = before.chain(objects.iter().map(Key::of)).collect();
        for key in &touched {
            if let Some(holders) = self.holders.get_mut(key) {
                holders.remove(file);
            }
        }
        for object in &objects {
            self.holders.entry(Key::of(object)).or_default().insert(file.clone());
        }
        if objects.is_empty() {
            self.objects.remove(file);
        } else {
            self.objects.insert(file.clone(), objects);
        }
        touched.into_iter().map(|key| self.fold(key)).collect()
    }

    /// A file cannot be read; it keeps its objects. Whether this is news.
    pub fn refuse(&mut self, file: &FileId, why: Refused) -> bool {
        self.bad.insert(file.clone(), why.clone()) != Some(why)
    }

    /// A file is gone.
    pub fn remove(&mut self, file: &FileId) -> Vec<Event> {
        self.set(file, Vec::new())
    }

    /// Files that hold objects or are bad.
    pub fn known(&self) -> BTreeSet<FileId> {
        self.objects.keys().chain(self.bad.keys()).cloned().collect()
    }

    /// The objects a file holds.
    pub fn objects(&self, file: &FileId) -> &[Object] {
        self.objects.get(file).map_or(&[], Vec::as_slice)
    }

    /// Files that could not be read, and why.
    pub fn bad(&self) -> &BTreeMap<FileId, Refused> {
        &self.bad
    }

    fn fold(&mut self, key: Key) -> Event {
        if self.holders.get(&key).is_some_and(BTreeSet::is_empty) {
            self.holders.remove(&key);
        }
        let of_pod = matches!(key, Key::Pod(..));
        let told = |holders: &&BTreeSet<FileId>| !of_pod || holders.iter().any(|file| !file.status);
        let Some(holders) = self.holders.get(&key).filter(told) else {
            return key.gone();
        };
        let own = |file| self.objects(file).iter().filter(|object| Key::of(object) == key);
        let objects = holders.iter().flat_map(own);
        match &key {
            Key::Node(name) => {
                let mut node = NodeObject::default();
                for object in objects {
                    if let Object::Node(_, next) = object {
                        later(&mut node.uid, &next.uid, String::is_empty);
                        later(&mut node.internal_ips, &next.internal_ips, Vec::is_empty);
                        later(&mut node.pod_cidrs, &next.pod_cidrs, Vec::is_empty);
                    }
                }
                Event::Node(name.clone(), node)
            }
            Key::Pod(name) => {
                let mut pod = PodObject::default();
                for (file, object) in holders.iter().flat_map(|file| own(file).map(move |object| (file, object))) {
                    if let Object::Pod(_, _, next) = object {
                        if !file.status {
                            later(&mut pod.uid, &next.uid, Uid::is_empty);
                        } else if ![&pod.uid, &next.uid].iter().any(|uid| uid.is_empty()) && pod.uid != next.uid {
                            continue;
                        }
                        later(&mut pod.node, &next.node, |node| node.is_empty());
                        later(&mut pod.ips, &next.ips, |ips| ips.is_empty());
                        later(&mut pod.created, &next.created, Option::is_none);
                        later(&mut pod.labels, &next.labels, |labels| labels.is_empty());
                        later(&mut pod.ports, &next.ports, |ports| ports.is_empty());
                        pod.host_network |= next.host_network;
                        pod.completed |= next.completed;
                    }
                }
                Event::Pod(Name::clone(name), pod)
            }
            // These have no status that another file would add: the last file's object is the object.
            Key::Namespace(name) => {
                let last =
                    objects.filter_map(|o| if let Object::Namespace(_, n) = o { Some(n) } else { None }).next_back();
                Event::Namespace(name.clone(), last.cloned().unwrap_or_default())
            }
            Key::Policy(name) => {
                let last =
                    objects.filter_map(|o| if let Object::Policy(.., p) = o { Some(p) } else { None }).next_back();
                Event::Policy(Name::clone(name), last.cloned().unwrap_or_default())
            }
        }
    }
}

fn later<T: Clone>(value: &mut T, next: &T, is_unset: impl Fn(&T) -> bool) {
    if !is_unset(next) {
        value.clone_from(next);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use super::*;

    fn file(name: &str) -> FileId {
        FileId { status: false, name: name.into() }
    }

    fn ip() -> IpAddr {
        "10.0.0.5".parse().unwrap()
    }

    fn node(cidr: &str) -> Object {
        let pod_cidrs = vec![cidr.parse().unwrap()];
        Object::Node("a".into(), NodeObject { pod_cidrs, ..NodeObject::default() })
    }

    #[test]
    fn a_status_file_adds_to_the_manifest_and_leaves_it_when_it_goes() {
        let mut files = Files::default();
        let status = FileId { status: true, name: "default.web.yaml".into() };
        let written = PodObject { ips: [ip()].into(), ..PodObject::default() };
        let declared = PodObject { node: "a".into(), uid: "u".into(), ..PodObject::default() };
        let key = Name::new("default", "web");
        // The order in which they are seen does not matter.
        files.set(&status, vec![Object::Pod(key.namespace().into(), key.name().into(), written.clone())]);
        let events = files
            .set(&file("web.yaml"), vec![Object::Pod(key.namespace().into(), key.name().into(), declared.clone())]);
        assert_eq!(events, [Event::Pod(key.clone(), PodObject { ips: written.ips, ..declared.clone() })]);
        assert_eq!(files.remove(&status), [Event::Pod(key.clone(), declared)]);
        assert_eq!(files.remove(&file("web.yaml")), [Event::PodGone(key)]);
        assert!(files.holders.is_empty());
    }

    #[test]
    fn a_status_file_of_another_pod_of_the_name_is_left_out() {
        let mut files = Files::default();
        let key = Name::new("default", "web");
        let status = FileId { status: true, name: "default.web.yaml".into() };
        let ips: Arc<[IpAddr]> = [ip()].into();
        let before = PodObject { uid: "before".into(), ips: ips.clone(), ..PodObject::default() };
        let pod = |uid: &str| PodObject { uid: uid.into(), node: "a".into(), ..PodObject::default() };
        let object = |pod| vec![Object::Pod(key.namespace().into(), key.name().into(), pod)];
        files.set(&status, object(before));
        let now = files.set(&file("web.yaml"), object(pod("now")));
        assert_eq!(now, [Event::Pod(key.clone(), pod("now"))]);
        // A manifest that says no uid may be of any, so nothing is compared with the status's.
        let any = files.set(&file("web.yaml"), object(pod("")));
        assert_eq!(any, [Event::Pod(key.clone(), PodObject { ips, ..pod("") })]);
    }

    #[test]
    fn a_status_file_alone_makes_no_pod() {
        let mut files = Files::default();
        let status = FileId { status: true, name: "default.web.yaml".into() };
        let key = Name::new("default", "web");
        let written = PodObject { ips: [ip()].into(), ..PodObject::default() };
        let object = |pod: &PodObject| vec![Object::Pod(key.namespace().into(), key.name().into(), pod.clone())];
        assert_eq!(files.set(&status, object(&written)), [Event::PodGone(key.clone())]);
        assert_eq!(
            files.set(&file("web.yaml"), object(&PodObject::default())),
            [Event::Pod(key.clone(), written.clone())]
        );
        assert_eq!(files.remove(&file("web.yaml")), [Event::PodGone(key.clone())]);
        assert_eq!(files.remove(&status), [Event::PodGone(key.clone())]);
        assert!(files.holders.is_empty());
    }

    #[test]
    fn an_object_that_moves_between_files_never_goes() {
        let mut files = Files::default();
        files.set(&file("1.yaml"), vec![node("10.1.0.0/24")]);
        assert!(matches!(&files.set(&file("2.yaml"), vec![node("10.2.0.0/24")])[..], [Event::Node(..)]));
        let events = files.remove(&file("1.yaml"));
        assert!(matches!(&events[..], [Event::Node(_, n)] if n.pod_cidrs == ["10.2.0.0/24".parse().unwrap()]));
    }

    #[test]
    fn a_bad_file_keeps_its_objects_until_it_goes_or_is_good_again() {
        let mut files = Files::default();
        files.set(&file("1.yaml"), vec![node("10.1.0.0/24")]);
        let why = Refused { line: 3, why: "x".into() };
        assert!(files.refuse(&file("1.yaml"), why.clone()));
        assert!(!files.refuse(&file("1.yaml"), why), "said once");
        assert_eq!(files.objects(&file("1.yaml")).len(), 1);
        files.set(&file("1.yaml"), vec![node("10.1.0.0/24")]);
        assert!(files.bad().is_empty());
        assert_eq!(files.remove(&file("1.yaml")), [Event::NodeGone("a".into())]);
    }
}

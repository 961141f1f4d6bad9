//! The rows of the maps are counted, never walked: whatever happens, the count is what is there.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::model::{
    Requirement, Sorted,
    policy::{Namespaces, Peer, Peers, Ports, Rule},
};

/// Something that happens to a node.
#[derive(Clone, Debug)]
enum Step {
    /// A pod comes or changes: its number, its label.
    Pod(u8, u8),
    PodGone(u8),
    /// A policy comes or changes: its number, the label of its peers, how many ranges it names.
    Policy(u8, u8, u8),
    PolicyGone(u8),
    Add(u8),
    Delete(u8),
    /// A barrier is over.
    Bury,
    /// The maps refuse, or do no more.
    Full(bool),
    TryAgain,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..8_u8, 0..3_u8).prop_map(|(pod, label)| Step::Pod(pod, label)),
        1 => (0..8_u8).prop_map(Step::PodGone),
        4 => (0..3_u8, 0..3_u8, 0..4_u8).prop_map(|(policy, label, ranges)| Step::Policy(policy, label, ranges)),
        1 => (0..3_u8).prop_map(Step::PolicyGone),
        3 => (0..8_u8).prop_map(Step::Add),
        1 => (0..8_u8).prop_map(Step::Delete),
        3 => Just(Step::Bury),
        1 => any::<bool>().prop_map(Step::Full),
        2 => Just(Step::TryAgain),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..40)
}

fn label(label: u8) -> Box<str> {
    format!("{label}").into()
}

fn told(step: &Step) -> Option<Event> {
    let name = |number: &u8| key(&format!("{number}"));
    Some(match step {
        Step::Pod(pod, of) => {
            let labels = Arc::new([("app".into(), label(*of))].into_iter().collect());
            let ips = [IpAddr::from([10, 0, 0, *pod])].into();
            Event::Pod(name(pod), PodObject { labels, ips, ..PodObject::default() })
        }
        Step::PodGone(pod) => Event::PodGone(name(pod)),
        Step::Policy(policy, of, ranges) => {
            let app = Requirement::In("app".into(), [label(*of)].into_iter().collect());
            let pods = Peer::Pods { namespaces: Namespaces::Own, pods: Selector([app].into_iter().collect()) };
            let range =
                |n: u8| Peer::Block { cidr: format!("192.0.{n}.0/24").parse().unwrap(), except: Sorted::default() };
            let peers = Peers::Of((0..*ranges).map(range).chain([pods]).collect());
            let ingress = Some(Arc::from([Rule { peers, ports: Ports::All }]));
            Event::Policy(name(policy), PolicyObject { ingress, ..PolicyObject::default() })
        }
        Step::PolicyGone(policy) => Event::PolicyGone(name(policy)),
        _ => return None,
    })
}

/// Does a step, and keeps what the source would tell a new agent.
fn take(world: &mut World, step: &Step) {
    let name = |pod: &u8| key(&format!("{pod}"));
    match step {
        Step::Add(pod) => {
            let slot = u32::from(*pod) + 1;
            let endpoint = Endpoint { v4: [10, 0, 0, *pod], ..endpoint(*pod) };
            let local = Local { pod: Some(name(pod)), ..local(*pod, "", "") };
            world.policing.put(&mut world.maps, slot, endpoint, local).unwrap();
        }
        Step::Delete(pod) => world.policing.remove(&mut world.maps, u32::from(*pod) + 1).unwrap(),
        Step::Bury => world.bury(),
        Step::Full(full) => world.maps.full = *full,
        Step::TryAgain => world.policing.try_again(&mut world.maps),
        Step::Restart => {
            let Cluster { pods, policies, .. } = world.policing.cluster().clone();
            let namespace = Event::Namespace("ns".into(), NamespaceObject::default());
            let pods = pods.into_iter().map(|(key, pod)| Event::Pod(key, *pod));
            let policies = policies.into_iter().map(|(key, policy)| Event::Policy(key, policy));
            world.restart([namespace].into_iter().chain(pods).chain(policies).collect());
        }
        step => world.tell(told(step).into_iter().collect()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn the_count_is_what_the_maps_hold(steps in steps()) {
        // The time of the retries stands.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let _inside = runtime.enter();
        let mut world = World::new();
        for step in steps {
            take(&mut world, &step);
            if world.policing.retry_at().is_some() {
                continue;
            }
            let Pinned { peers, blocks, verdicts, .. } = &world.maps.pinned;
            let there = PolicyRows { peers: peers.len(), blocks: blocks.len(), verdicts: verdicts.len() };
            prop_assert_eq!(world.policing.counts().rows, there, "after {:?}", step);
        }
    }
}

//! Pods and namespaces whose labels change.

use osmia_lab::{Encap, Proto};

use crate::stage::{Stage, both};

#[test]
fn labels_that_change_move_pods_and_namespaces_in_and_out() {
    let stage = Stage::new(Encap::Auto, 2);
    stage.namespace("shop", &[]);
    stage.namespace("guests", &[]);
    let db = stage.pod(0, "shop", "db", &[("app", "db")]);
    let (near, far) =
        (stage.pod(0, "guests", "near", &[("app", "web")]), stage.pod(1, "guests", "far", &[("app", "web")]));
    let tcp = db.serves(Proto::Tcp, 8080);
    let expect = |when: &str, near_reaches: bool, far_reaches: bool| {
        stage.settle();
        let senders = [("near", near.space(), near_reaches), ("far", far.space(), far_reaches)];
        stage.expect(when, both(&db, &tcp, &senders));
    };
    stage.policy(
        "shop",
        "in",
        "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}]}]}",
    );
    expect("a namespace without the label", false, false);
    stage.namespace("guests", &[("team", "a")]);
    expect("the namespace got the label", true, true);
    let relabel = |guest: &crate::stage::Guest, app: &str| {
        let mut object = guest.object.clone();
        object.labels = vec![("app".into(), app.into())];
        stage.tell(&object);
    };
    relabel(&near, "other");
    expect("one pod is another now", false, true);
    relabel(&near, "web");
    relabel(&far, "other");
    expect("and the other way round", true, false);
    relabel(&db, "cache");
    expect("the policy selects nobody any more", true, true);
    relabel(&db, "db");
    stage.namespace("guests", &[("team", "b")]);
    expect("the namespace lost the label", false, false);
}

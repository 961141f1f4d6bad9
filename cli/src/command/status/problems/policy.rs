//! What of policy is not as it was told.

use std::time::Duration;

use osmia_maps::{catalogue::CrowdedOut, decode::human_duration};

use super::{super::policy::Policy, Problem};

/// What takes longer to come into force is no change under way any more.
const LONG: Duration = Duration::from_secs(5);
/// Names that a line has.
const NAMED: usize = 5;

pub(super) fn find(seen: &Policy, found: &mut Vec<Problem>) {
    if !seen.has_room {
        let run = seen.run.display();
        found.push(Problem::bad(format!(
            "the run folder {run} is full: no change of policy comes into force until there is room on it"
        )));
    }
    behind(seen, found);
    pods(seen, found);
    if let Some(CrowdedOut { addresses, lowest }) = seen.crowded_out {
        found.push(Problem::bad(format!(
            "{addresses} addresses of pods that rules speak of have no room, from {lowest} on: rules of this node that allow pods \
             allow these not; let policies here allow fewer pods, or ranges"
        )));
    }
    for (policy, parts) in seen.refused.iter().take(NAMED) {
        let parts = if *parts == 1 { "1 part".to_owned() } else { format!("{parts} parts") };
        found.push(Problem::bad(format!(
            "NetworkPolicy {policy} has {parts} that the API would refuse and that allow nothing: `osmia policy show {policy}` \
             names them; mend the object"
        )));
    }
    if let Some(more @ 1..) = seen.refused.len().checked_sub(NAMED) {
        found.push(Problem::bad(format!("{more} more NetworkPolicies have such parts: `osmia policy list`")));
    }
    for problem in &seen.source {
        found.push(Problem::doubtful(format!("the source cannot tell all, what it said last holds: {problem}")));
    }
    found.extend(seen.stale.iter().map(Problem::doubtful));
}

fn behind(seen: &Policy, found: &mut Vec<Problem>) {
    let generation = seen.generation;
    let before = match seen.in_force {
        Some(at) => format!("generation {} is in force instead", at.generation),
        None => "none is in force".to_owned(),
    };
    if let Some(behind) = &seen.behind {
        let (age, why) = (human_duration(behind.age), &behind.why);
        let text = format!("for {age} a change of policy has been refused and {before}; it is tried again: {why}");
        found.push(Problem { bad: behind.age > LONG, text });
    } else if seen.is_begun() && seen.written > LONG {
        let age = human_duration(seen.written);
        found.push(Problem::bad(format!(
            "generation {generation} of the policies was begun {age} ago and never finished, {before}: start the agent again"
        )));
    } else if seen.is_begun() {
        found.push(Problem::doubtful(format!("generation {generation} of the policies is being written")));
    }
}

fn pods(seen: &Policy, found: &mut Vec<Problem>) {
    let of = |state: &str| seen.pods.get(state).map(|pods| list(pods));
    if let Some(pods) = of("over_budget") {
        found.push(Problem::bad(format!(
            "isolated, since their rules need more rows than there is room for: {pods}; fewer or wider ranges, ports and rules \
             in their policies (`osmia endpoint list`, the agent's log)"
        )));
    }
    if let Some(pods) = of("changing") {
        // It is a moment, unless the maps refuse.
        let lasts = seen.behind.as_ref().is_some_and(|behind| behind.age > LONG);
        found.push(Problem { bad: lasts, text: format!("shut until their rules are written: {pods}") });
    }
    if let Some(pods) = of("provisional") {
        found.push(Problem::doubtful(format!(
            "provisional, isolated until the source tells their Pod object and their Namespace: {pods}"
        )));
    }
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use osmia_maps::catalogue::InForce;

    use super::{super::super::policy::Behind, *};

    const SHORT: Duration = Duration::from_secs(1);

    fn said(change: impl FnOnce(&mut Policy)) -> Vec<String> {
        let mut policy = Policy {
            run: "/run/osmia".into(),
            has_room: true,
            stale: Vec::new(),
            generation: 12,
            in_force: Some(InForce { generation: 12, at_ms: 0, took_us: 0 }),
            written: Duration::from_secs(3600),
            behind: None,
            policies: 3,
            refused: Vec::new(),
            crowded_out: None,
            source: Vec::new(),
            pods: BTreeMap::from([("open", vec!["a/b".into()]), ("isolated", vec!["a/c".into()])]),
        };
        change(&mut policy);
        let mut found = Vec::new();
        find(&policy, &mut found);
        found.into_iter().map(|problem| format!("{}{}", if problem.bad { "!" } else { "?" }, problem.text)).collect()
    }

    fn behind(age: Duration) -> Option<Behind> {
        Some(Behind { age, why: "the map verdicts is full".into() })
    }

    #[test]
    fn nothing_is_said_where_all_is_in_force() {
        assert_eq!(said(|_| {}), [""; 0]);
    }

    #[test]
    fn a_refusal_is_red_when_it_lasts() {
        let lasting = said(|policy| policy.behind = behind(Duration::from_secs(90)));
        assert_eq!(
            lasting,
            [
                "!for 1m30s a change of policy has been refused and generation 12 is in force instead; it is tried again: the map \
              verdicts is full"
            ]
        );
        assert!(said(|policy| policy.behind = behind(SHORT))[0].starts_with("?for 1.0s"));
        let shut = |age| {
            said(move |policy| {
                policy.behind = behind(age);
                policy.pods.insert("changing", vec!["a/d".into()]);
            })
        };
        assert_eq!(shut(Duration::from_secs(90))[1], "!shut until their rules are written: a/d");
        assert_eq!(shut(SHORT)[1], "?shut until their rules are written: a/d");
    }

    #[test]
    fn a_generation_that_was_never_finished_is_red() {
        let killed = said(|policy| policy.generation = 13);
        assert!(killed[0].starts_with("!generation 13 of the policies was begun 1h"), "{killed:?}");
        assert!(killed[0].ends_with("generation 12 is in force instead: start the agent again"), "{killed:?}");
        let now = said(|policy| (policy.generation, policy.written) = (13, SHORT));
        assert_eq!(now, ["?generation 13 of the policies is being written"]);
        let first = said(|policy| policy.in_force = None);
        assert!(first[0].contains("none is in force"), "{first:?}");
    }

    #[test]
    fn pods_are_named_by_what_is_wrong_with_them() {
        let over = said(|policy| _ = policy.pods.insert("over_budget", (0..7).map(|n| format!("a/{n}")).collect()));
        assert!(
            over[0].starts_with("!isolated, since their rules need more rows than there is room for: a/0,"),
            "{over:?}"
        );
        assert!(over[0].contains("a/4 and 2 more;"), "{over:?}");
        let late = said(|policy| _ = policy.pods.insert("provisional", vec!["a/late".into()]));
        assert!(late[0].starts_with("?provisional, isolated until") && late[0].ends_with(": a/late"), "{late:?}");
    }

    #[test]
    fn a_refused_part_and_a_full_folder_are_red_and_a_silent_source_is_doubtful() {
        let refused = said(|policy| policy.refused = (0..7).map(|n| (format!("a/p{n}"), 1 + n)).collect());
        assert!(refused[0].starts_with("!NetworkPolicy a/p0 has 1 part that the API would refuse"), "{refused:?}");
        assert!(refused[1].starts_with("!NetworkPolicy a/p1 has 2 parts"), "{refused:?}");
        assert!(refused.len() == 6 && refused[5].starts_with("!2 more NetworkPolicies"), "{refused:?}");
        let out = CrowdedOut { addresses: 3, lowest: [10, 0, 0, 9].into() };
        let crowded = said(|policy| policy.crowded_out = Some(out));
        assert!(
            crowded[0].starts_with("!3 addresses of pods") && crowded[0].contains("from 10.0.0.9 on"),
            "{crowded:?}"
        );
        let full = said(|policy| policy.has_room = false);
        assert!(full[0].starts_with("!the run folder /run/osmia is full"), "{full:?}");
        let silent = said(|policy| policy.source = vec!["pods: no answer".into()]);
        assert_eq!(silent, ["?the source cannot tell all, what it said last holds: pods: no answer"]);
        assert_eq!(said(|policy| policy.stale = vec!["no names".into()]), ["?no names"]);
    }
}

//! One direction of a packet in words: who judges it, what is said, by which rule, and for a denial what would have been nearest.

use osmia_maps::{
    catalogue::{Direction, Reason, SetRule},
    decode::{Cell, Context, Record, ip, protocol},
    judge::{Place, Side},
    layout::{Addr, policy::OPEN},
};

use super::miss::{self, Miss, Wanted};
use crate::command::names::{Names, direction_name, policies_cell, reason_policies, reason_text, texts};

/// What is told of a direction.
#[derive(Debug)]
pub(super) struct Told {
    /// What a person reads: the verdict, then why.
    pub(super) lines: Vec<String>,
    /// What does not fit together, or has no name.
    pub(super) stale: Vec<String>,
    /// Whether trying again with a newer catalogue may find names.
    pub(super) nameless: bool,
    /// Whether another node judges it.
    pub(super) elsewhere: bool,
    /// The JSON.
    pub(super) record: Record,
}

/// The end of a direction.
pub(super) struct Of<'a> {
    pub(super) direction: Direction,
    /// Whose end it is.
    pub(super) place: &'a Place,
    /// What frees it from its rules.
    pub(super) freed: Option<&'static str>,
    /// The other end.
    pub(super) peer: Addr,
    pub(super) proto: u8,
    pub(super) port: Option<u16>,
}

/// What is known of a verdict beside the verdict.
#[derive(Default)]
struct Why<'a> {
    reason: Option<&'a Reason>,
    nearest: Option<(u32, Miss)>,
    lines: Vec<String>,
    stale: Vec<String>,
    nameless: bool,
}

impl Told {
    /// A direction that is none of this node's.
    pub(super) fn elsewhere(of: &Of<'_>, context: &Context) -> Self {
        let name = direction_name(of.direction);
        let (judged, text) = match of.place {
            Place::RemotePod(node) => {
                let node = context.node((*node).into());
                ("node", format!("{name}: judged on node {node}: run osmia explain there"))
            }
            Place::RemoteNode(node) => {
                let node = context.node((*node).into());
                ("nowhere", format!("{name}: node {node} and pods with its hostNetwork are held to no policy"))
            }
            Place::Node => {
                ("nowhere", format!("{name}: this node and pods with its hostNetwork are held to no policy"))
            }
            Place::Service => (
                "backend",
                format!(
                    "{name}: judged as that of the pod behind the service: explain its address, with the port that it listens on"
                ),
            ),
            Place::Nobody => ("nowhere", format!("{name}: no pod of this node has the address (NO_ENDPOINT)")),
            Place::Unowned => ("nowhere", format!("{name}: no node has the address (UNOWNED)")),
            Place::Outside | Place::Endpoint(..) => {
                ("nowhere", format!("{name}: outside the cluster, held to no policy"))
            }
        };
        let node = match of.place {
            Place::RemotePod(node) | Place::RemoteNode(node) => context.node((*node).into()),
            _ => Cell::Absent,
        };
        let record = members(judged, node, Cell::Absent, &Why::default(), None);
        Self { lines: vec![text], stale: Vec::new(), nameless: false, elsewhere: judged == "node", record }
    }

    /// The egress of a pod of this node to a service.
    pub(super) fn translated(of: &Of<'_>, names: &Names) -> Self {
        let (name, pod) = (direction_name(of.direction), pod_text(of, names));
        let lines = vec![
            format!("{name} of {pod}: judged after the translation, on the address and port of the pod behind the service"),
            "  this node's stack (kube-proxy) chooses that pod; where the service leads to this node itself, nothing is judged".to_owned(),
        ];
        let record = members("backend", Cell::Absent, Cell::Absent, &Why::default(), None);
        Self { lines, stale: Vec::new(), nameless: false, elsewhere: false, record }
    }

    /// What this node says.
    pub(super) fn here(of: &Of<'_>, side: &Side, names: &Names) -> Self {
        let (name, pod) = (direction_name(of.direction), pod_text(of, names));
        let verdict = if side.allows() { "allowed" } else { "denied" };
        let mut why = match (side.rules, of.freed) {
            (OPEN, _) => {
                let is_unnamed = matches!(of.place, Place::Endpoint(slot, _) if names.pod(*slot) == Some(None));
                let why =
                    if is_unnamed { "its runtime named no pod: no policy is asked" } else { "no policy isolates it" };
                Why { lines: vec![why.to_owned()], ..Why::default() }
            }
            (_, Some(freed)) if side.free => Why { lines: vec![freed.to_owned()], ..Why::default() },
            _ => judged(of, side, names),
        };
        let mut lines = vec![format!("{name} of {pod}: {verdict}")];
        lines.extend(why.lines.iter().map(|line| format!("  {line}")));
        let cell = Cell::name(if side.allows() { "allow" } else { "deny" });
        let record = members("here", Cell::Absent, cell, &why, Some((side, names)))
            .with("freed", if side.free { of.freed.map_or(Cell::Absent, Cell::name) } else { Cell::Absent });
        let stale = std::mem::take(&mut why.stale).into_iter().map(|text| format!("{name}: {text}")).collect();
        Self { lines, stale, nameless: why.nameless, elsewhere: false, record }
    }
}

fn pod_text(of: &Of<'_>, names: &Names) -> String {
    match of.place {
        Place::Endpoint(slot, _) => names.pod_text(*slot),
        _ => String::new(),
    }
}

/// The same members for every direction.
fn members(judged: &'static str, node: Cell, verdict: Cell, why: &Why<'_>, here: Option<(&Side, &Names)>) -> Record {
    let of = |cell: &dyn Fn(&Side, &Names) -> Cell| here.map_or(Cell::Absent, |(side, names)| cell(side, names));
    let nearest = why.nearest.as_ref().zip(here).map(|((cookie, miss), (_, names))| {
        Record::new()
            .with("cookie", Cell::Number((*cookie).into()))
            .with("rule", Cell::Text(names.cookie_text(*cookie).into()))
            .with("fails_on", Cell::Flags(miss.names().into_iter().map(Into::into).collect()))
    });
    let record = Record::with_capacity(12)
        .with("judged", Cell::name(judged))
        .with("node", node)
        .with("verdict", verdict)
        .with("rule_set", of(&|side, _| Cell::nonzero(side.rules)))
        .with("class", of(&|side, _| Cell::Number(side.class.into())))
        .with("cookie", of(&|side, _| Cell::nonzero(side.cookie())))
        .with("reason", why.reason.map_or(Cell::Absent, |reason| Cell::Text(reason_text(reason).into())))
        .with("policies", why.reason.map_or(Cell::List(Vec::new()), |reason| policies_cell(reason_policies(reason))))
        .with("nearest", nearest.map_or(Cell::Absent, Cell::Record))
        .with("known_as", of(&|side, names| texts(names.class_atoms(side.class).unwrap_or_default())));
    match here {
        Some(_) => record,
        None => record.with("freed", Cell::Absent),
    }
}

/// Why the rows say what they say, by the catalogue.
fn judged<'a>(of: &Of<'_>, side: &Side, names: &'a Names) -> Why<'a> {
    let mut why = Why { reason: names.reason(side.cookie()), ..Why::default() };
    let numbers = format!("rule set {}, class {}, cookie {}", side.rules, side.class, side.cookie());
    match (why.reason, side.allows()) {
        (Some(reason @ Reason::Rule { .. }), true) => why.lines.push(format!("by {} ({numbers})", reason_text(reason))),
        (Some(reason @ Reason::Rule { .. }), false) | (Some(reason), true) => {
            why.lines.push(format!("by a row whose cookie stands for: {} ({numbers})", reason_text(reason)));
            why.stale.push("the row says one thing and its name another: it is not what the agent wrote".to_owned());
        }
        (Some(reason), false) => why.lines.push(format!("{} ({numbers})", reason_text(reason))),
        (None, _) => {
            why.lines.push(format!("by a row without a name ({numbers})"));
            if side.cookie() == 0 {
                why.stale.push("no row of the rule set speaks of it: what has no row is denied".to_owned());
            } else {
                why.nameless = true;
                why.stale.push(format!("the catalogue does not know cookie {}", side.cookie()));
            }
        }
    }
    // No rule is in force.
    if matches!(why.reason, Some(Reason::Changing | Reason::OverBudget { .. } | Reason::Provisional { .. })) {
        return why;
    }
    let Some(set) = names.set(side.rules) else {
        why.nameless = true;
        why.stale.push(format!("the catalogue does not know rule set {}", side.rules));
        return why;
    };
    let Some(signature) = names.signature(side.class) else {
        why.nameless = true;
        why.stale.push(format!("the catalogue does not know class {}", side.class));
        return why;
    };
    if !side.allows() && set.len > 0 {
        let known = match names.class_atoms(side.class).unwrap_or_default() {
            none if none.is_empty() => "nobody whom a rule on this node names".to_owned(),
            atoms => atoms.join(", "),
        };
        why.lines.push(format!("{} counts as {known}", ip(of.peer)));
    }
    compare(
        of,
        &names.rules(side.rules),
        &Wanted { signature: &signature, proto: of.proto, port: of.port },
        side,
        names,
        &mut why,
    );
    why
}

/// The rules of the catalogue beside the row's verdict.
fn compare(of: &Of<'_>, rules: &[SetRule], wanted: &Wanted<'_>, side: &Side, names: &Names, why: &mut Why<'_>) {
    if side.allows() {
        let rule = rules.iter().find(|rule| rule.cookie == side.cookie());
        if rule.is_none_or(|rule| !miss::of(rule, wanted).is_hit()) {
            why.stale.push("by the catalogue no such rule allows it: rows and catalogue differ".to_owned());
        }
        return;
    }
    let by_name = |cookie: u32| match names.reason(cookie) {
        Some(Reason::Rule { policy, rule, .. }) => Some((policy, *rule)),
        _ => None,
    };
    let Some((rule, miss)) = miss::nearest_rule(rules, wanted, |rule| by_name(rule.cookie)) else {
        why.lines.push("it has no rules: nothing is allowed".to_owned());
        return;
    };
    let text = names.cookie_text(rule.cookie);
    if miss.is_hit() {
        why.stale.push(format!("by the catalogue a rule allows it: {text}; rows and catalogue differ"));
        return;
    }
    why.lines.push(format!("nearest: {text}"));
    let fails = miss.names().into_iter().map(|name| match name {
        "peer" => format!("peer {}", ip(of.peer)),
        "protocol" => format!("protocol {}", protocol::text(of.proto)),
        _ => format!("port {}", of.port.unwrap_or_default()),
    });
    why.lines.push(format!("         fails on {}", fails.collect::<Vec<_>>().join(", ")));
    why.nearest = Some((rule.cookie, miss));
}

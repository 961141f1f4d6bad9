//! Text → objects: Kubernetes YAML or JSON, several documents a file, only the fields that matter.
//!
//! Invariant: a file is taken whole or not at all; an error names the line in the file.

use serde::{Deserialize, de::DeserializeOwned};

use crate::source::object::{Object, Text};

/// Why a file was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Refused {
    /// Line in the file, from 1.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    items: Vec<serde_json::Value>,
}

/// The objects of a file, in its order. Kinds we do not read are skipped.
///
/// # Errors
/// The first document that is no YAML, or an object with a field of the wrong type.
pub fn parse(text: &str) -> Result<Vec<Object>, Refused> {
    let mut objects = Vec::new();
    for (first_line, document) in documents(text.trim_start_matches('\u{feff}')) {
        let Some(Head { kind }) = yaml::<Option<Head>>(first_line, document)? else { continue };
        if kind == "List" || kind.ends_with("List") {
            for (i, item) in yaml::<List>(first_line, document)?.items.into_iter().enumerate() {
                let refused = |e: String| Refused { line: first_line, why: format!("items[{i}]: {e}") };
                let kind = item.get("kind").and_then(|kind| kind.as_str()).unwrap_or_default().to_owned();
                objects.extend(Object::read(&kind, &Item(item)).map_err(refused)?);
            }
            continue;
        }
        objects.extend(Object::read(&kind, &Document { first_line, text: document }).map_err(|e| e.at(first_line))?);
    }
    Ok(objects)
}

/// An item of a List.
struct Item(serde_json::Value);

impl Text for Item {
    type Error = String;

    fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        T::deserialize(&self.0).map_err(|e| e.to_string())
    }
}

/// A YAML document.
struct Document<'a> {
    first_line: u64,
    text: &'a str,
}

impl Text for Document<'_> {
    type Error = OrText;

    fn read<T: DeserializeOwned>(&self) -> Result<T, OrText> {
        Ok(yaml(self.first_line, self.text)?)
    }
}

/// An error that knows its line, or one that is only a text.
enum OrText {
    Refused(Refused),
    Text(String),
}

impl OrText {
    fn at(self, line: u64) -> Refused {
        match self {
            Self::Refused(refused) => refused,
            Self::Text(why) => Refused { line, why },
        }
    }
}

impl From<Refused> for OrText {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<String> for OrText {
    fn from(why: String) -> Self {
        Self::Text(why)
    }
}

/// The documents of a file with their first line. `---` at the start of a line is a document's start wherever it stands (YAML 1.2,
/// 9.1.2), so no scalar can hold it. The line stays with its document: the parser may want what follows it.
fn documents(text: &str) -> impl Iterator<Item = (u64, &str)> {
    let mut starts = vec![(1, 0)];
    let mut offset = 0;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        if marker && offset > 0 {
            starts.push((number, offset));
        }
        offset += line.len();
    }
    let ends: Vec<usize> = starts.iter().skip(1).map(|(_, start)| *start).chain([text.len()]).collect();
    starts
        .into_iter()
        .zip(ends)
        .filter_map(|((line, start), end)| text.get(start..end).map(|document| (line, document)))
}

fn yaml<T: DeserializeOwned>(first_line: u64, document: &str) -> Result<T, Refused> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(document, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line().max(1));
        // One line of it: this goes to a log.
        let why = error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Refused { line: first_line + line - 1, why }
    })
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use super::*;
    use crate::model::{NodeObject, PodObject};

    const TWO: &str = "
apiVersion: v1
kind: Node
metadata: {name: a, uid: u1}
spec:
  podCIDR: 10.1.0.0/24
  podCIDRs: [10.1.0.0/24, 'fd00:1::/64']
  taints: [{key: x, effect: NoSchedule}]
status:
  addresses:
  - {type: Hostname, address: a}
  - {type: InternalIP, address: 192.0.2.1}
  - {type: InternalIP, address: '2001:db8::1'}
--- # a pod
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  nodeName: a
  containers:
  - name: c
    args: [\"a\\n--- b\"]
status:
  podIPs:
  - ip: 10.1.0.5
";

    #[test]
    fn reads_nodes_and_pods() {
        let objects = parse(TWO).unwrap();
        let node = NodeObject {
            uid: "u1".into(),
            internal_ips: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            pod_cidrs: vec!["10.1.0.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap()],
        };
        let labels = [("app".into(), "web".into())].into_iter().collect();
        let ips = ["10.1.0.5".parse().unwrap()].into();
        let pod = PodObject { node: "a".into(), ips, labels: Arc::new(labels), ..PodObject::default() };
        assert_eq!(objects, [Object::Node("a".into(), node), Object::Pod("default".into(), "web".into(), pod)]);
    }

    #[test]
    fn the_older_single_fields_count_where_the_lists_are_missing() {
        let text = "kind: Node\nmetadata: {name: a}\nspec: {podCIDR: 10.1.0.9/24}\n---\nkind: Pod\nmetadata: {name: p, namespace: n}\nstatus: {podIP: 10.1.0.5, phase: Succeeded}\n";
        let objects = parse(text).unwrap();
        assert!(matches!(&objects[0], Object::Node(_, n) if n.pod_cidrs == ["10.1.0.0/24".parse().unwrap()]));
        assert!(
            matches!(&objects[1], Object::Pod(_, _, p) if p.completed && *p.ips == ["10.1.0.5".parse::<IpAddr>().unwrap()])
        );
    }

    #[test]
    fn the_page_about_policies_has_objects_that_the_api_would_take() {
        let page = include_str!("../../../../docs/policy.md");
        let lines = page.lines().skip_while(|line| !line.starts_with("    apiVersion"));
        let lines = lines.map_while(|line| line.strip_prefix("    "));
        let names: Vec<String> = parse(&lines.collect::<Vec<_>>().join("\n"))
            .unwrap()
            .into_iter()
            .map(|object| match object {
                Object::Policy(_, name, policy) if policy.refused.is_empty() => name,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, ["default-deny", "db", "web"]);
    }

    #[test]
    fn kinds_we_do_not_read_are_no_error() {
        let text = "kind: Deployment\nspec: what ever\n---\n---\n# nothing\n---\nkind: Service\nmetadata: {name: x}\n";
        assert_eq!(parse(text), Ok(vec![]));
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn json_and_lists_are_read_too() {
        let text = r#"{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"p"},"spec":{"hostNetwork":true}},{"kind":"Service"}]}"#;
        assert!(matches!(&parse(text).unwrap()[..], [Object::Pod(_, _, p)] if p.host_network));
        let bad = r#"{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"p"},"spec":{"hostNetwork":"x"}}]}"#;
        assert!(parse(bad).unwrap_err().why.contains("items[0]"));
    }

    #[test]
    fn an_error_names_the_line_of_the_file() {
        for (bad, line) in [
            (
                "kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata:\n  name: b\nspec:\n  podCIDRs: [nonsense]\n",
                8,
            ),
            ("kind: Node\nmetadata: {name: a}\n---\nkind: [\n", 4),
            ("kind: Node\nmetadata: {name: a}\nstatus:\n  addresses:\n  - type: InternalIP\n    address: x\n", 5),
        ] {
            let refused = parse(bad).unwrap_err();
            assert!(refused.line.abs_diff(line) <= 1, "{refused} should be near line {line}");
        }
        assert!(parse("kind: Node\nspec: {}\n").unwrap_err().why.contains("metadata"));
    }
}

//! The attachments that GC is told are valid.

use serde_json::Value;

use super::error::code;
use super::fields::Fields;
use crate::protocol::{AttachmentKey, Failure};

/// The key of the specification, and the older one that the reference library sends as well (cni#1101, #1103).
const KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// The union of both lists. A list that is `[]` or `null` says that none is valid; a *missing* one says nothing.
///
/// # Errors
/// Code 7 if there is no list, or if it is not a list of `{containerID, ifname}`: then nothing may be removed.
pub fn valid(map: &serde_json::Map<String, Value>) -> Result<Vec<AttachmentKey>, Failure> {
    if !KEYS.iter().any(|k| map.contains_key(*k)) {
        return Err(Failure::new(
            code::CONFIG,
            format!("GC without {}: nothing was removed; the runtime must list what is in use", KEYS[0]),
        ));
    }
    let top = Fields::top(map);
    let mut valid = Vec::new();
    for name in KEYS {
        for item in top.list(name)? {
            let wrong = || top.wrong(name, item, "a list of {containerID, ifname}");
            let part = |key: &str| item.get(key).and_then(Value::as_str).ok_or_else(wrong);
            // One that could never have been added is not ours, and cannot be removed by mistake either.
            if let Ok(attachment) = AttachmentKey::new(part("containerID")?, part("ifname")?) {
                valid.push(attachment);
            }
        }
    }
    valid.sort();
    valid.dedup();
    Ok(valid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<Vec<AttachmentKey>, Failure> {
        valid(value.as_object().unwrap())
    }

    fn item(id: &str) -> Value {
        json!({"containerID": id, "ifname": "eth0"})
    }

    fn key(id: &str) -> AttachmentKey {
        AttachmentKey::new(id, "eth0").unwrap()
    }

    /// G1, G2.
    #[test]
    fn an_empty_list_is_none_valid_and_a_missing_one_is_an_error() {
        for value in [
            json!({"cni.dev/valid-attachments": []}),
            json!({"cni.dev/valid-attachments": null}),
            json!({"cni.dev/attachments": null}),
        ] {
            assert_eq!(read(&value), Ok(vec![]));
        }
        assert_eq!(read(&json!({"name": "x"})).unwrap_err().code, code::CONFIG);
        let both =
            json!({"cni.dev/valid-attachments": [item("b"), item("a")], "cni.dev/attachments": [item("a"), item("c")]});
        assert_eq!(read(&both), Ok(vec![key("a"), key("b"), key("c")]));
    }

    #[test]
    fn a_list_that_cannot_be_read_removes_nothing() {
        for list in [
            json!("x"),
            json!({}),
            json!([1]),
            json!([{"containerID": "a"}]),
            json!([{"containerID": 1, "ifname": "e"}]),
        ] {
            assert_eq!(read(&json!({"cni.dev/valid-attachments": list})).unwrap_err().code, code::CONFIG, "{list}");
        }
        assert_eq!(read(&json!({"cni.dev/valid-attachments": [item("../x"), item("a")]})), Ok(vec![key("a")]));
    }
}

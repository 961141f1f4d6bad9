//! Typed access to the fields of a JSON object, with errors that name the key and what it should be.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::error::code;
use crate::protocol::Failure;

/// An object and where it stands in the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    map: Option<&'a Map<String, Value>>,
    path: &'static str,
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

impl<'a> Fields<'a> {
    /// The configuration's own fields.
    #[must_use]
    pub fn top(map: &'a Map<String, Value>) -> Self {
        Self { map: Some(map), path: "" }
    }

    /// The fields of an object that is no part of the configuration's text; anything else has none. `path` as for [`Self::object`].
    #[must_use]
    pub fn below(value: &'a Value, path: &'static str) -> Self {
        Self { map: value.as_object(), path }
    }

    /// A field that is there and not null; null counts as absent everywhere (V6).
    #[must_use]
    pub fn get(self, key: &str) -> Option<&'a Value> {
        self.map?.get(key).filter(|v| !v.is_null())
    }

    /// Code 7: the value, by its kind alone since it may be a credential, is not what `key` takes.
    #[must_use]
    pub fn wrong(self, key: &str, value: &Value, expected: &str) -> Failure {
        let path = self.path;
        Failure::new(
            code::CONFIG,
            format!("{path}{key} is {}, not {expected}: correct the network configuration", kind(value)),
        )
    }

    /// A string.
    ///
    /// # Errors
    /// Code 7 for another type.
    pub fn string(self, key: &str) -> Result<Option<&'a str>, Failure> {
        self.get(key).map(|v| v.as_str().ok_or_else(|| self.wrong(key, v, "a string"))).transpose()
    }

    /// A list of strings; absent is empty.
    ///
    /// # Errors
    /// Code 7 for another type.
    pub fn strings(self, key: &str) -> Result<Vec<String>, Failure> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let wrong = || self.wrong(key, value, "a list of strings");
        let items = value.as_array().ok_or_else(wrong)?;
        items.iter().map(|v| v.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
    }

    /// A list; absent is empty.
    ///
    /// # Errors
    /// Code 7 for another type.
    pub fn list(self, key: &str) -> Result<&'a [Value], Failure> {
        self.get(key).map_or(Ok(&[]), |v| v.as_array().map(Vec::as_slice).ok_or_else(|| self.wrong(key, v, "a list")))
    }

    /// A whole number of 0 or more.
    ///
    /// # Errors
    /// Code 7 for anything else.
    pub fn number(self, key: &str) -> Result<Option<u64>, Failure> {
        self.get(key).map(|v| v.as_u64().ok_or_else(|| self.wrong(key, v, "a whole number"))).transpose()
    }

    /// An absolute path.
    ///
    /// # Errors
    /// Code 7 for another type or a relative path: the plugin's working folder is the runtime's.
    pub fn path(self, key: &str) -> Result<Option<PathBuf>, Failure> {
        let Some(text) = self.string(key)? else { return Ok(None) };
        let path = PathBuf::from(text);
        if path.is_absolute() && !text.contains('\0') {
            return Ok(Some(path));
        }
        let message =
            format!("{}{key} {text:?} must be an absolute path: correct the network configuration", self.path);
        Err(Failure::new(code::CONFIG, message))
    }

    /// An object in it; absent is empty. `path` is what its errors say before a key.
    ///
    /// # Errors
    /// Code 7 for another type.
    pub fn object(self, key: &str, path: &'static str) -> Result<Fields<'a>, Failure> {
        let map = self.get(key).map(|v| v.as_object().ok_or_else(|| self.wrong(key, v, "an object"))).transpose()?;
        Ok(Fields { map, path })
    }

    /// Its keys.
    pub fn keys(self) -> impl Iterator<Item = &'a str> {
        self.map.into_iter().flat_map(Map::keys).map(String::as_str)
    }
}

/// The same value with all keys in lower case, at every depth: containerd writes `HostPort`, others `hostPort`.
#[must_use]
pub fn lower_keys(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.to_ascii_lowercase(), lower_keys(v))).collect()),
        Value::Array(items) => Value::Array(items.iter().map(lower_keys).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wrong_type_names_key_and_expectation_but_never_the_value() {
        let value = json!({"a": "s3cret", "b": {"c": [1]}, "p": "relative", "n": null});
        let top = Fields::top(value.as_object().unwrap());
        for failure in [top.number("a").unwrap_err(), top.list("a").unwrap_err(), top.object("a", "a.").unwrap_err()] {
            assert!(failure.code == code::CONFIG && failure.message.starts_with("a is a string"));
            assert!(!failure.message.contains("s3cret"));
        }
        let inner = top.object("b", "b.").unwrap();
        assert!(inner.strings("c").unwrap_err().message.starts_with("b.c is a list"));
        assert!(top.path("p").unwrap_err().message.contains("absolute"));
        assert_eq!(top.string("n"), Ok(None));
    }
}

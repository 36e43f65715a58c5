//! A request as the log shows it: much like the command that it could have been typed as. It is
//! made for people to read, not for a shell.

use std::fmt;

use serde_json::Value;

use super::Request;

/// Options that are turned on or off, or left to the pool.
const SWITCHES: [&str; 2] = ["write_back", "checksums"];

/// Fields that the command line takes without the name of an option, in its order.
const WITHOUT_NAMES: [&str; 11] = [
    "pool",
    "volume",
    "folder",
    "job",
    "drive",
    "drives",
    "new_name",
    "snapshots",
    "snapshot",
    "target",
    "newer",
];

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let Value::Object(mut fields) = self.fields() else { return Ok(()) };
        for name in WITHOUT_NAMES {
            if let Some(value) = fields.remove(name).and_then(|value| shown(&value)) {
                write!(f, " {value}")?;
            }
        }
        for (name, value) in &fields {
            let option = name.replace('_', "-");
            match (value, shown(value)) {
                (Value::Bool(on), _) if SWITCHES.contains(&name.as_str()) => {
                    write!(f, " --{option} {}", if *on { "on" } else { "off" })?;
                }
                (Value::Bool(true), _) => write!(f, " --{option}")?,
                (Value::Bool(false), _) | (_, None) => {}
                (_, Some(value)) => write!(f, " --{option} {value}")?,
            }
        }
        Ok(())
    }
}

/// A value in one word, or several for a list; nothing where it says nothing.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() || text.contains(char::is_whitespace) => {
            Some(format!("{text:?}"))
        }
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(shown).collect();
            (!items.is_empty()).then(|| items.join(" "))
        }
        Value::Object(parts) => {
            // A setting is one part; without a value it is taken back.
            let part = |(name, part): (&String, &Value)| match shown(part) {
                Some(part) => Some(format!("{name}={part}")),
                None => (parts.len() == 1).then(|| format!("{name}=none")),
            };
            let parts: Vec<String> = parts.iter().filter_map(part).collect();
            Some(parts.join(","))
        }
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
    }
}

//! Holds documents against the schemas of an OpenAPI description, for the tests: types, required
//! and unknown keys, alternatives, enumerations.

use std::collections::BTreeSet;

use serde_json::Value;

/// Everything in which a value does not fit a schema of the description.
pub(super) fn misfits(description: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let checked = Checked { description };
    let mut wrong = Vec::new();
    checked.check(schema, value, "", &mut wrong);
    wrong
}

struct Checked<'a> {
    description: &'a Value,
}

impl<'a> Checked<'a> {
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let path = schema["$ref"].as_str().and_then(|text| text.strip_prefix('#'));
        path.map_or(schema, |path| self.description.pointer(path).unwrap_or(&Value::Null))
    }

    fn check(&self, schema: &'a Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
        let schema = self.resolved(schema);
        if !schema.is_object() {
            wrong.push(format!("{place}: there is no schema"));
            return;
        }
        for key in ["oneOf", "anyOf"] {
            let Some(choices) = schema[key].as_array() else { continue };
            let misfits: Vec<Vec<String>> = choices
                .iter()
                .map(|choice| {
                    let mut wrong = Vec::new();
                    self.check(choice, value, place, &mut wrong);
                    wrong
                })
                .collect();
            if misfits.iter().all(|wrong| !wrong.is_empty()) {
                wrong.push(format!("{place}: {value} is none of the choices: {misfits:?}"));
            }
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            // Its keys are known here.
            let mut of_part = Vec::new();
            self.check(part, value, place, &mut of_part);
            wrong.extend(of_part.into_iter().filter(|what| !what.contains("unknown key")));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        if !types.is_empty() && !types.iter().any(|of| is_of(of, value)) {
            wrong.push(format!("{place}: {value} is not of type {types:?}"));
        }
        if let Some(all) = schema["enum"].as_array()
            && !all.contains(value)
        {
            wrong.push(format!("{place}: {value} is none of {all:?}"));
        }
        if let Some(keys) = value.as_object() {
            self.check_keys(schema, keys, place, wrong);
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            if !schema["items"].is_null() {
                self.check(&schema["items"], item, &format!("{place}/{index}"), wrong);
            }
        }
    }

    fn check_keys(
        &self,
        schema: &'a Value,
        keys: &serde_json::Map<String, Value>,
        place: &str,
        wrong: &mut Vec<String>,
    ) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !keys.contains_key(name) {
                wrong.push(format!("{place}: {name} is lacking"));
            }
        }
        let mut known = BTreeSet::new();
        self.add_known(schema, &mut known);
        for (name, value) in keys {
            let below = format!("{place}/{name}");
            match &schema["properties"][name] {
                Value::Null if known.is_empty() || known.contains(name.as_str()) => {}
                Value::Null => wrong.push(format!("{below}: unknown key")),
                property => self.check(property, value, &below, wrong),
            }
        }
    }

    /// Names of the keys that a schema and its parts know.
    fn add_known(&self, schema: &'a Value, known: &mut BTreeSet<&'a str>) {
        let schema = self.resolved(schema);
        known.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
        for key in ["allOf", "oneOf", "anyOf"] {
            let parts = schema[key].as_array().into_iter().flatten();
            parts.for_each(|part| self.add_known(part, known));
        }
    }
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        _ => value.is_number(),
    }
}

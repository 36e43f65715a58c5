//! A validator of OpenAPI 3.1 documents, for the tests: the rules of the specification that a
//! generated document can break.

use std::collections::BTreeSet;

use serde_json::Value;

const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

/// Everything that is wrong with a document.
pub(super) fn violations(document: &Value) -> Vec<String> {
    let mut rules = Rules { document, wrong: Vec::new(), operations: BTreeSet::new() };
    rules.check_document();
    rules.wrong
}

struct Rules<'a> {
    document: &'a Value,
    wrong: Vec<String>,
    operations: BTreeSet<String>,
}

impl Rules<'_> {
    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(what());
        }
    }

    fn check_document(&mut self) {
        let document = self.document;
        let version = document["openapi"].as_str().unwrap_or_default();
        self.expect(version.starts_with("3.1."), || format!("openapi: {version:?}"));
        for key in ["title", "version"] {
            self.expect(document["info"][key].is_string(), || format!("info has no {key}"));
        }
        self.check_security(&document["security"], "the document");
        for (name, scheme) in document["components"]["securitySchemes"].as_object().into_iter().flatten() {
            let is_known = match scheme["type"].as_str() {
                Some("http") => scheme["scheme"].is_string(),
                Some("apiKey") => scheme["name"].is_string() && scheme["in"].is_string(),
                Some("mutualTLS") => true,
                _ => false,
            };
            self.expect(is_known, || format!("security scheme {name} is incomplete"));
        }
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
            self.expect(name.chars().all(is_plain), || format!("schema {name} has an impossible name"));
            self.check_schema(schema, name);
        }
        let mut templates = BTreeSet::new();
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            self.expect(path.starts_with('/'), || format!("{path} does not begin with /"));
            let template: Vec<&str> =
                path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect();
            self.expect(templates.insert(template.join("/")), || format!("{path} is there twice"));
            for (method, operation) in item.as_object().into_iter().flatten() {
                if METHODS.contains(&method.as_str()) {
                    self.check_operation(&format!("{method} {path}"), path, item, operation);
                } else {
                    let known =
                        ["parameters", "summary", "description", "servers"].contains(&method.as_str());
                    self.expect(known, || format!("{path} has `{method}`"));
                }
            }
        }
        self.check_references(document);
    }

    fn check_operation(&mut self, place: &str, path: &str, item: &Value, operation: &Value) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        let is_new = !id.is_empty() && self.operations.insert(id.clone());
        self.expect(is_new, || format!("{place}: the operation's identity {id:?} is missing or used twice"));
        if !operation["security"].is_null() {
            self.check_security(&operation["security"], place);
        }
        let (mut declared, mut in_path) = (BTreeSet::new(), BTreeSet::new());
        let lists = [&item["parameters"], &operation["parameters"]];
        for parameter in lists.into_iter().flat_map(|list| list.as_array().into_iter().flatten()) {
            let (name, place_of) = (parameter["name"].as_str(), parameter["in"].as_str());
            let (Some(name), Some(place_of)) = (name, place_of) else {
                self.wrong.push(format!("{place}: a parameter without a name or a place"));
                continue;
            };
            let is_new = declared.insert((name.to_owned(), place_of.to_owned()));
            self.expect(is_new, || format!("{place}: parameter {name} twice"));
            let is_placed = ["query", "header", "path", "cookie"].contains(&place_of);
            self.expect(is_placed, || format!("{place}: parameter {name} in {place_of}"));
            self.expect(parameter["schema"].is_object(), || {
                format!("{place}: parameter {name} has no schema")
            });
            self.check_schema(&parameter["schema"], place);
            if place_of == "path" {
                self.expect(parameter["required"] == true, || format!("{place}: {name} is not required"));
                in_path.insert(name.to_owned());
            }
        }
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let wanted: BTreeSet<String> = names.map(str::to_owned).collect();
        self.expect(wanted == in_path, || format!("{place}: parameters in the path are {in_path:?}"));
        let body = &operation["requestBody"];
        self.expect(body.is_null() || body["content"].is_object(), || format!("{place}: a body of nothing"));
        self.check_content(&body["content"], place);
        let responses = operation["responses"].as_object();
        self.expect(responses.is_some_and(|all| !all.is_empty()), || format!("{place}: no responses"));
        for (status, response) in responses.into_iter().flatten() {
            let is_status = status == "default"
                || (status.len() == 3 && status.starts_with(|first: char| ('1'..='5').contains(&first)));
            self.expect(is_status, || format!("{place}: a response {status}"));
            let is_described = response["description"].as_str().is_some_and(|text| !text.is_empty());
            self.expect(is_described, || format!("{place}: response {status} has no description"));
            self.check_content(&response["content"], place);
        }
    }

    fn check_content(&mut self, content: &Value, place: &str) {
        for (kind, media) in content.as_object().into_iter().flatten() {
            self.expect(kind.contains('/'), || format!("{place}: {kind} is no media type"));
            self.check_schema(&media["schema"], place);
        }
    }

    fn check_security(&mut self, requirements: &Value, place: &str) {
        self.expect(requirements.is_array(), || format!("{place}: it is not said who may ask"));
        let schemes = &self.document["components"]["securitySchemes"];
        for name in requirements
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|one| one.as_object())
            .flat_map(|one| one.keys())
        {
            self.expect(schemes[name].is_object(), || format!("{place}: security scheme {name} is unknown"));
        }
    }

    fn check_schema(&mut self, schema: &Value, place: &str) {
        if schema.is_null() || schema.is_boolean() {
            return;
        }
        self.expect(schema.is_object(), || format!("{place}: {schema} is no schema"));
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            Value::Null => Vec::new(),
            one => vec![one.clone()],
        };
        for of in &types {
            let is_type = of.as_str().is_some_and(|of| TYPES.contains(&of));
            self.expect(is_type, || format!("{place}: {of} is no type"));
        }
        // Only valid up to version 3.0.
        self.expect(schema["nullable"].is_null(), || format!("{place}: `nullable` is not known any more"));
        let properties = schema["properties"].as_object();
        for name in schema["required"].as_array().into_iter().flatten() {
            let is_there =
                name.as_str().is_some_and(|name| properties.is_some_and(|all| all.contains_key(name)));
            self.expect(is_there, || format!("{place}: {name} is required and not there"));
        }
        let below = properties.into_iter().flat_map(|all| all.values());
        let parts = ["oneOf", "anyOf", "allOf"].map(|key| schema[key].as_array());
        let parts = parts.into_iter().flatten().flatten();
        for below in below.chain(parts).chain([&schema["items"], &schema["additionalProperties"]]) {
            self.check_schema(below, place);
        }
    }

    fn check_references(&mut self, at: &Value) {
        match at {
            Value::Object(all) => {
                if let Some(reference) = all.get("$ref") {
                    let path = reference.as_str().and_then(|text| text.strip_prefix('#'));
                    let is_there = path.is_some_and(|path| self.document.pointer(path).is_some());
                    self.expect(is_there, || format!("{reference} leads nowhere"));
                }
                all.values().for_each(|below| self.check_references(below));
            }
            Value::Array(all) => all.iter().for_each(|below| self.check_references(below)),
            _ => {}
        }
    }
}

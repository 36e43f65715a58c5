//! The description in OpenAPI: what the handlers say of themselves, and what holds for all of them:
//! parameters in paths, tokens, the shape of every answer that is no success, and an example of
//! each request and answer (`examples.json`, by the name of its schema).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

/// Refusals that any request may get.
const REFUSALS: [(&str, &str); 6] = [
    ("400", "The request makes no sense"),
    ("401", "A valid token is needed"),
    ("403", "The caller's role is not enough, or a web page of another site sent the request"),
    ("404", "The pool, volume or drive is not there"),
    ("409", "It could not be done"),
    ("503", "Too much is being done, or the daemon is ending"),
];

/// Examples by the names of schemas.
const EXAMPLES: &str = include_str!("examples.json");

/// The document.
pub(super) fn text(description: &OpenApi) -> String {
    let mut document = serde_json::to_value(description).expect("plain data becomes JSON");
    complete(&mut document);
    document.to_string()
}

fn complete(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({"token": {
        "type": "http", "scheme": "bearer",
        "description": "A secret of the daemon's token file. Its role (read, operate, admin) decides what it may ask for.",
    }});
    let examples: Value = serde_json::from_str(EXAMPLES).expect("the examples are JSON");
    document["components"]["examples"] = as_components(&examples);
    for name in documents(document) {
        add_version(&mut document["components"]["schemas"][name]);
    }
    // Over a unix socket the user counts, and no token is needed.
    document["security"] = json!([{"token": []}, {}]);
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for (path, item) in paths {
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameters: Vec<Value> = names
            .map(|name| {
                let example = &examples["parameters"][name];
                json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"},
                    "example": example})
            })
            .collect();
        let Some(item) = item.as_object_mut() else { continue };
        for operation in item.values_mut().filter_map(Value::as_object_mut) {
            add_refusals(operation);
            add_examples(operation, &examples);
            if let Some(known) = operation.entry("parameters").or_insert_with(|| json!([])).as_array_mut() {
                known.extend(parameters.iter().cloned());
            }
        }
    }
}

/// Examples as components of the document.
fn as_components(examples: &Value) -> Value {
    let of_schemas = examples["schemas"].as_object().into_iter().flatten();
    of_schemas.map(|(name, value)| (name.clone(), json!({ "value": value }))).collect::<Map<_, _>>().into()
}

/// Schemas of the documents that commands print. The printer puts the version of the output in
/// front of each.
fn documents(document: &Value) -> BTreeSet<String> {
    let operations = document["paths"].as_object().into_iter().flatten();
    let operations = operations.flat_map(|(_, item)| item.as_object().into_iter().flatten());
    let schemas = operations.filter_map(|(_, operation)| {
        name_of(&operation["responses"]["200"]["content"]["application/json"]["schema"])
    });
    schemas.map(str::to_owned).collect()
}

/// Name of the schema that a reference leads to.
fn name_of(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

/// Gives each body the example of its schema.
fn add_examples(operation: &mut Map<String, Value>, examples: &Value) {
    let add = |body: &mut Value| {
        for media in body["content"].as_object_mut().into_iter().flat_map(|all| all.values_mut()) {
            let Some(name) = name_of(&media["schema"]) else { continue };
            if !examples["schemas"][name].is_null() {
                let reference = format!("#/components/examples/{name}");
                media["examples"] = json!({ name: { "$ref": reference } });
            }
        }
    };
    if let Some(body) = operation.get_mut("requestBody") {
        add(body);
    }
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
    responses.into_iter().flat_map(|all| all.values_mut()).for_each(add);
}

fn add_version(schema: &mut Value) {
    schema["properties"]["output_version"] = json!({"type": "integer", "format": "int32", "minimum": 0});
    if let Some(required) = schema["required"].as_array_mut() {
        required.insert(0, json!("output_version"));
    }
}

fn add_refusals(operation: &mut Map<String, Value>) {
    let Some(responses) = operation.entry("responses").or_insert_with(|| json!({})).as_object_mut() else {
        return;
    };
    for (status, description) in REFUSALS {
        let schema = json!({"$ref": "#/components/schemas/Problem"});
        let refusal =
            json!({"description": description, "content": {"application/problem+json": {"schema": schema}}});
        responses.insert(status.to_owned(), refusal);
    }
    for response in responses.values_mut() {
        if response["description"].as_str().is_none_or(str::is_empty) {
            response["description"] = json!("Done");
        }
    }
}

//! Answers of a daemon, held against the schemas of its OpenAPI description.

use serde_json::{Value, json};

use crate::kit::Sandbox;
use crate::kit::daemon::Daemon;
use crate::kit::web::Web;

#[path = "../../src/http/api/openapi_values.rs"]
mod openapi_values;

/// The operation of a description that a request is of.
fn operation<'a>(description: &'a Value, method: &str, path: &str) -> &'a Value {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |template: &str| {
        let (parts, asked) = (template.split('/'), path.split('/'));
        parts.clone().count() == asked.clone().count()
            && parts.zip(asked).all(|(part, asked)| part.starts_with('{') || part == asked)
    };
    let paths = description["paths"].as_object().expect("paths").iter();
    let item = paths.filter(|(template, _)| fits(template)).map(|(_, item)| item).next();
    &item.unwrap_or_else(|| panic!("{path} is not described"))[method.to_ascii_lowercase()]
}

#[test]
fn answers_fit_their_openapi_schemas() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 5 --size 32MiB");
    let daemon = Daemon::start(&sandbox, "--alert-command true");
    let web = Web::own(&sandbox);
    let description = web.ok("GET", "/api/v1/openapi.json", Value::Null);
    let drive = |number: usize| sandbox.text(&format!("d/drive{number}.img"));
    let ask = |method: &str, path: &str, body: Value| {
        let (status, answer) = web.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        // After the wait it answers as the wait does.
        let described = if path.ends_with("/scrub?wait=true") { "/api/v1/pools/tank/wait" } else { path };
        let operation = operation(&description, method, described);
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        let misfits = openapi_values::misfits(&description, schema, &answer);
        assert_eq!(misfits, Vec::<String>::new(), "{method} {path}: {answer:#}");
        answer
    };
    let pool = "/api/v1/pools/tank";
    let path = |rest: &str| format!("{pool}{rest}");
    let created = json!({"name": "tank", "drives": [drive(0), drive(1), drive(2)]});
    ask("POST", "/api/v1/pools", created);
    let volume = json!({"name": "a", "layout": "raid5", "size_bytes": 8 << 20});
    ask("POST", &path("/volumes"), volume);
    ask("PUT", &path("/volumes/a/bytes"), json!(7));
    ask("PATCH", &path("/volumes/a"), json!({"size_bytes": 12 << 20}));
    ask("PATCH", pool, json!({"scrub": "weekly"}));
    let added = ask("POST", &path("/drives"), json!({"drives": [drive(3)], "role": "spare"}));
    let drives = added["pools"][0]["drives"].as_array().expect("drives");
    let id = |index: usize| drives[index]["id"].as_str().expect("an ID");
    ask("POST", &path(&format!("/drives/{}/offline", id(0))), Value::Null);
    ask("GET", pool, Value::Null);
    ask("POST", &path(&format!("/drives/{}/online?wait=true", id(0))), Value::Null);
    ask("DELETE", &path(&format!("/drives/{}", id(3))), Value::Null);
    for job in ["scrub?wait=true", "wait?job=rebuild", "clear", "rebalance"] {
        ask("POST", &path(&format!("/{job}")), Value::Null);
    }
    for shown in ["/settings", "/events", "/iostat", "/volumes", "/volumes/a"] {
        ask("GET", &path(shown), Value::Null);
    }
    for shown in ["pools", "volumes", "known-pools", "drives"] {
        ask("GET", &format!("/api/v1/{shown}"), Value::Null);
    }
    ask("POST", "/api/v1/drives/show", json!({"drives": [drive(0), drive(4)]}));
    ask("POST", "/api/v1/drives/clear", json!({"drive": drive(3), "yes": true}));
    ask("POST", "/api/v1/alerts/test", Value::Null);
    ask("DELETE", &path("/volumes/a?yes=true"), Value::Null);
    ask("POST", &path("/rename"), json!({"name": "lake"}));
    ask("POST", "/api/v1/pools/lake/export", Value::Null);
    ask("POST", "/api/v1/import", json!({"folders": [sandbox.text("d")], "all": true}));
    ask("DELETE", "/api/v1/pools/lake?yes=true", Value::Null);
    daemon.end();
}

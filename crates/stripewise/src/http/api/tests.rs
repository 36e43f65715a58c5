//! Everything that the command line can do with pools can be asked for over HTTP: each path is
//! asked once with all that it takes, and the requests that come of it are held against the
//! commands that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use axum::body::{Body, Bytes};
use axum::http;
use clap::CommandFactory;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use serde_json::{Value, json};
use stripewise_control::daemon::caller::Collected;
use stripewise_control::daemon::news::{Followed, PoolNews};
use stripewise_control::report::{PoolReport, PoolState};
use stripewise_control::response::Response as ControlResponse;
use stripewise_export::budget::Budget;
use tower::ServiceExt;

use super::*;
use crate::cli::Cli;
use crate::http::access::AccessFile;
use crate::http::address::Address;
use crate::http::clients::Clients;
use crate::http::console::sessions::Sessions;
use crate::http::console::views;
use crate::http::guard::Peer;

/// Commands that have no path, and why.
const WITHOUT_A_PATH: [(&str, &str); 24] = [
    ("evaluate", "measures this machine for minutes on drives that it makes; uses no pool of a daemon"),
    ("lab profiles", "the laboratory is used beside a daemon, not through it"),
    ("lab run", "measures for minutes, on targets of the user who types it"),
    ("lab study", "measures for minutes on drives that it makes"),
    ("lab list", "the result store is a file of its own, beside the pools"),
    ("lab show", "as above"),
    ("lab compare", "as above"),
    ("lab report", "as above"),
    ("lab import", "as above"),
    ("lab export", "as above"),
    (
        "model catalogue",
        "a model needs no pool, and predicts for seconds in which a daemon would serve no client",
    ),
    ("model predict", "as above"),
    ("model reliability", "as above"),
    ("model replay", "as above"),
    ("model sweep", "as above"),
    ("model validate", "as above"),
    ("advise", "as above"),
    ("pool advise", "reads what the daemon leaves for others, and predicts in a process of its own"),
    ("simulate torture", "uses pools in memory only"),
    ("drive make", "makes files to try things out with; uses no pool of a daemon"),
    ("drive measure", "measures a drive of no pool for a minute, in which a daemon would serve no client"),
    ("serve", "is the daemon"),
    ("completions", "is for the shell in which it is typed"),
    ("man", "writes files on the caller's machine"),
];

/// Paths that are no commands: streams.
const STREAMS: [&str; 2] = ["/api/v1/events", "/api/v1/pools/tank/jobs/scrub/events"];

/// Fields that no path sets, and why.
const FOR_PEOPLE: [(&str, &str); 2] =
    [("causes", "every document has them"), ("of_system", "the mounts of `mount` and /etc/fstab")];

/// All paths that need a token.
fn whole(orders: mpsc::Sender<Order>, guard: Guard) -> Router {
    router(orders, Arc::new(guard), views())
}

/// Each path with all that it takes.
fn examples() -> Vec<(&'static str, &'static str, Value)> {
    let (pool, drive, volume) =
        ("/api/v1/pools/tank", "/api/v1/pools/tank/drives/abcd", "/api/v1/pools/tank/volumes/a");
    let text = |parts: [&str; 2]| -> &'static str { parts.concat().leak() };
    let new_pool = json!({"name": "tank", "drives": ["/d/0"], "spares": ["/d/1"], "journals": ["/d/2"],
        "fast": ["/d/3"], "slab_bytes": 1 << 20, "force": true});
    let settings = json!({"rebuild_priority": "low", "rebuild_latency": "20ms", "patrol_rate": "1MB", "patrol_interval": "7", "scrub": "monthly",
        "space_warning": 90, "tier_rate": "off"});
    let new_volume = json!({"name": "a", "layout": "raid50", "columns": 6, "groups": 2,
        "interleave_bytes": 65_536, "size_bytes": 1 << 30, "thin": true, "write_back": true, "checksums": false,
        "pin": "fast", "slices": 4});
    let import = json!({"folders": ["/d"], "drives": ["nbd://host/disk"], "pool": "tank", "new_name": "other",
        "force": true, "new_identity": true, "destroyed": true});
    let through = json!({"name": "a", "layout": "raid5", "write_back": false, "checksums": true});
    let log = json!({"name": "l", "layout": "raid5", "log": true, "reserve_percent": 20});
    let layout = json!({"layout": "raid50", "columns": 6, "groups": 2, "interleave_bytes": 65_536,
        "slices": 2, "yes": true});
    vec![
        ("GET", "/api/v1/pools", Value::Null),
        ("POST", "/api/v1/pools", new_pool),
        ("POST", "/api/v1/import", import),
        ("POST", "/api/v1/import", json!({"all": true})),
        ("POST", text([pool, "/rename"]), json!({"name": "other"})),
        ("GET", "/api/v1/known-pools", Value::Null),
        ("POST", "/api/v1/alerts/test", Value::Null),
        ("GET", "/api/v1/drives?pool=tank", Value::Null),
        (
            "POST",
            "/api/v1/mounts",
            json!({"target": "tank/a", "folder": "/mnt/a", "file_system": "xfs",
            "options": ["noatime"]}),
        ),
        ("DELETE", "/api/v1/mounts?target=tank/a", Value::Null),
        ("GET", pool, Value::Null),
        ("PATCH", pool, settings),
        ("DELETE", text([pool, "?yes=true&wipe=true"]), Value::Null),
        ("POST", text([pool, "/export"]), Value::Null),
        ("GET", text([pool, "/events?last=5"]), Value::Null),
        ("GET", text([pool, "/settings?key=scrub"]), Value::Null),
        ("GET", text([pool, "/iostat?seconds=2&count=3"]), Value::Null),
        ("POST", text([pool, "/scrub?wait=true&check_only=true"]), Value::Null),
        ("POST", text([pool, "/clear?drive=abcd"]), Value::Null),
        ("POST", text([pool, "/rebalance?wait=true"]), Value::Null),
        ("DELETE", text([pool, "/rebalance"]), Value::Null),
        ("POST", text([pool, "/wait?job=rebuild"]), Value::Null),
        ("POST", "/api/v1/drives/show", json!({"drives": ["/d/0", "/d/1"]})),
        ("POST", "/api/v1/drives/locate", json!({"drive": "/d/0", "on": true})),
        ("POST", "/api/v1/drives/clear", json!({"drive": "/d/0", "yes": true, "force": true})),
        ("POST", text([pool, "/drives"]), json!({"drives": ["/d/5"], "role": "spare", "force": true})),
        ("POST", text([pool, "/grow?wait=true"]), json!({"drives": ["abcd"], "yes": true})),
        ("DELETE", drive, Value::Null),
        ("POST", text([drive, "/retire?wait=true"]), Value::Null),
        ("POST", text([drive, "/offline"]), Value::Null),
        ("POST", text([drive, "/online?wait=true"]), Value::Null),
        ("POST", text([drive, "/replace?wait=true"]), json!({"with": "/d/6", "force": true, "yes": true})),
        ("GET", "/api/v1/volumes", Value::Null),
        ("GET", text([pool, "/volumes"]), Value::Null),
        ("POST", text([pool, "/volumes"]), new_volume),
        ("POST", text([pool, "/volumes"]), through),
        ("POST", text([pool, "/volumes"]), log),
        ("GET", volume, Value::Null),
        ("PATCH", volume, json!({"size_bytes": 1 << 30})),
        ("PATCH", text([volume, "?wait=true"]), json!({"pin": "slow"})),
        ("PATCH", text([volume, "?wait=true"]), json!({"convert": layout})),
        ("PATCH", text([volume, "?wait=true"]), json!({"cancel_conversion": true})),
        ("PATCH", volume, json!({"snapshot_schedule": {"hourly": 24, "daily": 7, "weekly": 0}})),
        ("DELETE", text([volume, "?yes=true"]), Value::Null),
        ("GET", text([volume, "/bytes?offset=1&length=2"]), Value::Null),
        ("PUT", text([volume, "/bytes?offset=1"]), Value::Null),
        ("GET", "/api/v1/snapshots", Value::Null),
        ("GET", text([pool, "/snapshots"]), Value::Null),
        ("POST", text([pool, "/snapshots"]), json!({"snapshots": ["a@monday", "b@monday"]})),
        ("GET", text([volume, "/snapshots"]), Value::Null),
        ("DELETE", text([volume, "/snapshots/monday"]), Value::Null),
        ("GET", text([volume, "/snapshots/monday/diff?with=tuesday&offset=4096&limit=5"]), Value::Null),
        ("POST", text([volume, "/snapshots/monday/rollback?delete_newer=true"]), Value::Null),
        ("POST", text([volume, "/snapshots/monday/clone"]), json!({"name": "trial"})),
        ("GET", text([volume, "/snapshots/monday/stream?from=sunday"]), Value::Null),
        (
            "POST",
            text([
                volume,
                "/receive?layout=raid50&columns=6&groups=2&interleave_bytes=65536&reserve_percent=20",
            ]),
            Value::Null,
        ),
    ]
}

fn guard() -> Guard {
    let access = AccessFile::open("/nowhere/tokens".as_ref(), false).expect("there is none");
    let clients = Clients::new(&Budget::default());
    Guard { access: Arc::new(access), refusals: Arc::default(), clients, sessions: Sessions::default() }
}

/// The interface, as a connection from there sees it.
fn visited_by(router: Router, address: Address) -> Router {
    router.layer(axum::Extension(Peer { address, place: Arc::default(), is_encrypted: false }))
}

/// Asks for each; the requests that came of them, and the description.
fn ask_all(examples: &[(&str, &str, Value)]) -> (Vec<Request>, Value) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (orders_in, mut orders) = mpsc::channel::<Order>(1);
        let router = visited_by(whole(orders_in, guard()), Address::Local { user: 0, process: 1 });
        let mut asked = Vec::new();
        for (method, path, body) in examples {
            let request = http::Request::builder().method(*method).uri(*path).header("host", "localhost");
            let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
            let request = request.header("content-type", "application/json").body(body).expect("a request");
            let answering = async {
                let order = orders.next().await.expect("it is passed on");
                let Order::Request { request, answer, .. } = order else { panic!("{path} is a request") };
                let result = Ok(ControlResponse::Pools(Pools { pools: Vec::new() }));
                let _ = answer.send(Answer { result, collected: Collected::default() });
                request
            };
            let asking = pin!(router.clone().oneshot(request));
            let (asked_for, response) = match select(asking, pin!(answering)).await {
                Either::Left((response, _)) => panic!("{method} {path}: refused: {response:?}"),
                Either::Right((asked_for, asking)) => (asked_for, asking.await.expect("an answer")),
            };
            assert_eq!(response.status(), StatusCode::OK, "{method} {path}");
            asked.push(*asked_for);
        }
        let request =
            http::Request::get("/api/v1/openapi.json").header("host", "localhost").body(Body::empty());
        let response = router.oneshot(request.expect("a request")).await.expect("an answer");
        let bytes = axum::body::to_bytes(response.into_body(), MAX_BYTES).await.expect("a body");
        (asked, serde_json::from_slice(&bytes).expect("JSON"))
    })
}

/// Commands by their names.
fn all_commands() -> BTreeSet<String> {
    fn add(command: &clap::Command, path: &str, all: &mut BTreeSet<String>) {
        if !command.has_subcommands() {
            all.insert(path.trim().to_owned());
        }
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            add(below, &format!("{path} {}", below.get_name()), all);
        }
    }
    let mut all = BTreeSet::new();
    let mut command = Cli::command();
    command.build();
    add(&command, "", &mut all);
    all
}

/// The fields of a request, and those of them that say something.
fn fields(request: &Request) -> (BTreeSet<String>, BTreeSet<String>) {
    let request = serde_json::to_value(request).expect("plain data");
    let fields = request["of"].as_object().expect("fields").iter();
    let says_something =
        |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && *value != json!([]);
    let set = fields.clone().filter(|(_, value)| says_something(value));
    (fields.clone().map(|(name, _)| name.clone()).collect(), set.map(|(name, _)| name.clone()).collect())
}

#[test]
fn the_openapi_validator_finds_violations() {
    let (_, description) = ask_all(&[]);
    let spoil = |spoil: fn(&mut Value)| {
        let mut document = description.clone();
        spoil(&mut document);
        super::openapi_rules::violations(&document).len()
    };
    assert_eq!(spoil(|_| ()), 0);
    let spoils: [fn(&mut Value); 8] = [
        |d| d["openapi"] = json!("3.0.0"),
        |d| d["info"]["version"] = Value::Null,
        |d| d["security"] = json!([{"password": []}]),
        |d| d["paths"]["/api/v1/pools/{pool}"]["get"]["parameters"] = json!([]),
        |d| d["paths"]["/api/v1/pools"]["get"]["operationId"] = json!("create_pool"),
        |d| d["paths"]["/api/v1/pools"]["get"]["responses"] = json!({}),
        |d| d["components"]["schemas"]["Problem"] = json!({"type": "text"}),
        |d| d["components"]["schemas"] = json!({}),
    ];
    for (index, wrong) in spoils.into_iter().enumerate() {
        assert!(spoil(wrong) > 0, "{index}");
    }
}

/// Bodies of an operation that are documents: the request's, and that of success.
fn bodies(operation: &Value) -> Vec<&Value> {
    let success = &operation["responses"]["200"]["content"];
    let all = [&operation["requestBody"]["content"], success].into_iter().filter_map(Value::as_object);
    all.flatten().filter(|(kind, _)| *kind != "application/octet-stream").map(|(_, body)| body).collect()
}

/// Examples of the description, as requests.
fn described_requests(description: &Value) -> Vec<(String, String, Value)> {
    let mut requests = Vec::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let Some(body) = operation["requestBody"]["content"]["application/json"].as_object() else {
                continue;
            };
            let mut path = path.clone();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = format!("{{{}}}", parameter["name"].as_str().expect("a name"));
                path = path.replace(&name, parameter["example"].as_str().unwrap_or_default());
            }
            let example = body["examples"].as_object().and_then(|all| all.values().next());
            let reference = example.and_then(|example| example["$ref"].as_str()).unwrap_or_default();
            let value = description.pointer(&format!("{}/value", reference.trim_start_matches('#')));
            let value = value.unwrap_or_else(|| panic!("{method} {path} has no example")).clone();
            requests.push((method.to_ascii_uppercase(), path, value));
        }
    }
    requests
}

#[test]
fn each_body_has_a_schema_and_a_valid_example() {
    let (_, description) = ask_all(&[]);
    let mut count = 0;
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let is_bytes = method == "get" && path.ends_with("/bytes");
            let success = &operation["responses"]["200"]["content"];
            assert!(is_bytes || success.is_object(), "{method} {path}: nothing is said of the answer");
            for body in bodies(operation) {
                let examples = body["examples"].as_object().into_iter().flatten();
                let references: Vec<&str> = examples.filter_map(|(_, one)| one["$ref"].as_str()).collect();
                assert!(!references.is_empty(), "{method} {path}: no example: {body}");
                for reference in references {
                    let value = description.pointer(&format!("{}/value", reference.trim_start_matches('#')));
                    let value = value.unwrap_or_else(|| panic!("{reference} leads nowhere"));
                    let misfits = super::openapi_values::misfits(&description, &body["schema"], value);
                    assert_eq!(misfits, Vec::<String>::new(), "{method} {path}: {reference}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 40, "{count} examples");
    let requests = described_requests(&description);
    let requests: Vec<_> =
        requests.iter().map(|(method, path, body)| (method.as_str(), path.as_str(), body.clone())).collect();
    let (asked, _) = ask_all(&requests);
    assert_eq!(asked.len(), requests.len(), "each example is understood");
}

#[test]
fn every_command_has_an_http_path() {
    let examples = examples();
    let (asked, description) = ask_all(&examples);
    let mut used: BTreeMap<&str, (BTreeSet<String>, BTreeSet<String>)> = BTreeMap::new();
    for request in &asked {
        let (all, set) = fields(request);
        let of_name = used.entry(request.name()).or_default();
        of_name.0.extend(all);
        of_name.1.extend(set);
    }
    for command in all_commands() {
        if WITHOUT_A_PATH.iter().any(|(without, _)| *without == command) {
            assert!(!used.contains_key(command.as_str()), "{command} has a path after all");
            continue;
        }
        let (all, set) = used.get(command.as_str()).unwrap_or_else(|| panic!("{command} has no path"));
        let unset = all.difference(set).find(|field| !FOR_PEOPLE.iter().any(|(name, _)| name == field));
        assert_eq!(unset, None, "{command}: no path sets this field");
    }

    assert_eq!(super::openapi_rules::violations(&description), Vec::<String>::new());
    for name in ["Pools", "Volumes", "VolumeChanged", "Events"] {
        let schema = &description["components"]["schemas"][name];
        let required = schema["required"].as_array().expect("a document has fields");
        assert!(required.contains(&json!("output_version")), "{name}: {schema}");
    }

    // Each path in the description was asked.
    let paths = description["paths"].as_object().expect("paths");
    for (template, operations) in paths {
        for method in operations.as_object().expect("operations").keys() {
            let fits = |(asked, path): (&str, &str)| {
                let path = path.split('?').next().unwrap_or_default();
                let (parts, asked_parts) = (template.split('/'), path.split('/'));
                asked.eq_ignore_ascii_case(method)
                    && parts.clone().count() == asked_parts.clone().count()
                    && parts.zip(asked_parts).all(|(part, asked)| part.starts_with('{') || part == asked)
            };
            let mut asked = examples.iter().map(|(asked, path, _)| (*asked, *path));
            let is_stream = STREAMS.into_iter().any(|path| fits(("GET", path)));
            assert!(asked.any(fits) || is_stream, "{method} {template} has an example");
        }
    }
}

#[test]
fn streams_send_typed_events_until_they_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (orders_in, mut orders) = mpsc::channel::<Order>(1);
        let router = visited_by(whole(orders_in, guard()), Address::Local { user: 0, process: 1 });
        let job = Followed::Job { pool: "tank".to_owned(), kind: "scrub".parse().expect("a kind") };
        for (path, wanted) in STREAMS.into_iter().zip([Followed::AllPools, job]) {
            let answering = async {
                let order = orders.next().await.expect("it is passed on");
                let Order::Follow { followed, answer, .. } = order else { panic!("{path} is a stream") };
                assert_eq!(followed, wanted);
                let (mut to, news) = mpsc::channel(2);
                for pool in ["tank", "pool"] {
                    to.try_send(PoolNews::Gone { pool: pool.to_owned() }).expect("room");
                }
                answer.send(Ok(news)).expect("it is waited for");
            };
            let request = http::Request::get(path).header("host", "localhost").body(Body::empty());
            let asking = router.clone().oneshot(request.expect("a request"));
            let ((), response) = futures_util::join!(answering, asking);
            let response = response.expect("an answer");
            assert_eq!(response.headers()["content-type"], "text/event-stream", "{path}");
            let body = axum::body::to_bytes(response.into_body(), MAX_BYTES).await.expect("it ends");
            let expected = "event: gone\ndata: {\"kind\":\"gone\",\"pool\":\"tank\"}\n\n\
                            event: gone\ndata: {\"kind\":\"gone\",\"pool\":\"pool\"}\n\n";
            assert_eq!(String::from_utf8_lossy(&body), expected, "{path}");
        }
        let unknown = http::Request::get("/api/v1/pools/tank/jobs/dance/events").header("host", "localhost");
        let response = router.oneshot(unknown.body(Body::empty()).expect("a request")).await;
        assert_eq!(response.expect("an answer").status(), StatusCode::BAD_REQUEST);
    });
}

#[test]
fn failed_results_are_problems_with_the_document() {
    let pool = PoolReport { name: "tank".into(), state: PoolState::Failed, ..PoolReport::default() };
    let result = Ok(ControlResponse::Pools(Pools { pools: vec![pool] }));
    let response = answered(Answer { result, collected: Collected::default() });
    assert_eq!(response.status(), StatusCode::CONFLICT);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let body = runtime.block_on(axum::body::to_bytes(response.into_body(), 1 << 20));
    let problem: Value = serde_json::from_slice(&body.expect("in memory")).expect("JSON");
    assert_eq!((&problem["status"], &problem["output_version"]), (&json!(409), &json!(1)));
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
    let pool = &problem["document"]["pools"][0];
    assert_eq!((&pool["name"], &pool["state"]), (&json!("tank"), &json!("failed")));
}

/// A router whose tokens are `eyes` (read), `hands` (operate) and `head` (admin), all of one secret
/// length, and the orders that come of what is asked.
fn with_tokens(folder: &std::path::Path) -> (Router, mpsc::Receiver<Order>) {
    let path = folder.join("tokens");
    let text = "token eyes read eyes0123456789ab\ntoken hands operate hands0123456789a\ntoken head admin head0123456789ab\n";
    AccessFile::open(&path, true).expect("made");
    std::fs::write(&path, text).expect("written");
    let access = AccessFile::open(&path, true).expect("right");
    let clients = Clients::new(&Budget::default());
    let guard =
        Guard { access: Arc::new(access), refusals: Arc::default(), clients, sessions: Sessions::default() };
    let (orders_in, orders) = mpsc::channel::<Order>(1);
    let network = Address::Network("127.0.0.1:5".parse().expect("an address"));
    (visited_by(whole(orders_in, guard), network), orders)
}

async fn answer_of(
    router: &Router,
    secret: &str,
    method: &str,
    path: &str,
    body: Body,
) -> (StatusCode, String) {
    let request = http::Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.header("authorization", format!("Bearer {secret}"));
    let request = request.header("content-type", "application/json").body(body).expect("a request");
    let response = router.clone().oneshot(request).await.expect("an answer");
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), MAX_BYTES).await.expect("a body");
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn in_runtime(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(work);
}

#[test]
fn the_role_is_checked_before_the_body_is_read() {
    in_runtime(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (router, _orders) = with_tokens(folder.path());
        // It would wait for ever if it were read.
        let body = || Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        for (secret, method, path) in [
            ("eyes0123456789ab", "POST", "/api/v1/pools/tank/drives"),
            ("eyes0123456789ab", "PATCH", "/api/v1/pools/tank/volumes/a"),
            ("eyes0123456789ab", "GET", "/api/v1/pools/tank/volumes/a/bytes"),
            ("hands0123456789a", "POST", "/api/v1/pools"),
            ("hands0123456789a", "PUT", "/api/v1/pools/tank/volumes/a/bytes"),
            ("hands0123456789a", "DELETE", "/api/v1/pools/tank/volumes/a"),
        ] {
            let (status, said) = answer_of(&router, secret, method, path, body()).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}: {said}");
        }
        let (status, _) = answer_of(&router, "head0123456789ab", "POST", "/api/v1/nothing", body()).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "what is not there reads no body");
    });
}

/// The path of the description that an example is of.
fn template_of(description: &Value, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |template: &&String| {
        let (parts, asked) = (template.split('/'), path.split('/'));
        parts.clone().count() == asked.clone().count()
            && parts.zip(asked).all(|(part, asked)| part.starts_with('{') || part == asked)
    };
    let mut all = description["paths"].as_object().expect("paths").keys().filter(fits).collect::<Vec<_>>();
    // One with fewer variables is meant.
    all.sort_by_key(|template| template.matches('{').count());
    all.first().unwrap_or_else(|| panic!("{path} is described")).to_string()
}

#[test]
fn each_path_needs_the_least_of_its_requests_roles() {
    let examples = examples();
    let (asked, description) = ask_all(&examples);
    let mut least: BTreeMap<(String, String), stripewise_control::roles::Role> = BTreeMap::new();
    for ((method, path, _), request) in examples.iter().zip(asked) {
        // Clears the fields that alone raise the required role.
        let needs = match request {
            Request::AddDrives(asked) => Request::from(AddDrives { force: false, ..asked }),
            Request::ReplaceDrive(asked) => ReplaceDrive { force: false, ..asked }.into(),
            Request::ConvertVolume(asked) => ConvertVolume { yes: false, ..asked }.into(),
            other => other,
        }
        .needs();
        let key = ((*method).to_owned(), template_of(&description, path));
        least.entry(key).and_modify(|role| *role = needs.min(*role)).or_insert(needs);
    }
    for ((method, template), needs) in least {
        let method = method.parse().expect("a method");
        assert_eq!(roles::least_role(&method, &template), needs, "{method} {template}");
    }
}

#[test]
fn a_document_with_millions_of_values_is_refused() {
    in_runtime(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (router, _orders) = with_tokens(folder.path());
        let path = "/api/v1/pools/tank/drives";
        let ask =
            async |body: String| answer_of(&router, "hands0123456789a", "POST", path, body.into()).await;
        let many = format!("{{\"drives\":[{}\"\"]}}", "\"\",".repeat(5_600_000));
        let (status, said) = ask(many).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{said}");
        let many = format!("{{\"drives\":[{}\"\"]}}", "\"\",".repeat(100_000));
        let (status, said) = ask(many).await;
        assert!(status == StatusCode::PAYLOAD_TOO_LARGE && said.contains("4096 values"), "{status} {said}");
        let (status, said) = ask(format!("{{\"drives\":{}", "[".repeat(10_000))).await;
        assert!(status == StatusCode::PAYLOAD_TOO_LARGE && said.contains("deeper"), "{status} {said}");
        // An error message quotes only part of the request.
        let (status, said) =
            ask(format!("{{\"drives\":[\"/d\"],\"role\":\"{}\"}}", "x".repeat(500_000))).await;
        assert!(status == StatusCode::BAD_REQUEST && said.len() < 10_000, "{status} {}", said.len());
    });
}

#[test]
fn less_redundancy_needs_the_role_admin() {
    in_runtime(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (router, mut orders) = with_tokens(folder.path());
        let body = |yes: bool| json!({"convert": {"layout": "raid0", "yes": yes}}).to_string().into();
        let path = "/api/v1/pools/tank/volumes/a";
        let (status, said) = answer_of(&router, "hands0123456789a", "PATCH", path, body(true)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{said}");
        for (secret, yes, role) in
            [("head0123456789ab", true, "admin"), ("hands0123456789a", false, "operate")]
        {
            let asking = pin!(answer_of(&router, secret, "PATCH", path, body(yes)));
            let Either::Right((Some(Order::Request { visitor, .. }), _)) =
                select(asking, orders.next()).await
            else {
                panic!("{role} may ask");
            };
            assert_eq!(visitor.role.to_string(), role);
        }
    });
}

//! Names for completion. Another run of this program lists them, so that a shell never waits longer
//! than a limit, whatever drives do.

use std::env;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Time after which a shell gets no names.
const LIMIT: Duration = Duration::from_secs(2);

/// Names of the known pools.
pub(super) fn pools() -> Vec<String> {
    let document = listed(&["pool", "list"]);
    items(&document["pools"]).filter_map(|pool| text(&pool["name"])).collect()
}

/// Volumes of the known pools, as `POOL/VOL`.
pub(super) fn volumes() -> Vec<String> {
    let document = listed(&["volume", "list"]);
    let name = |volume: &Value| Some(format!("{}/{}", text(&volume["pool"])?, text(&volume["name"])?));
    items(&document["volumes"]).filter_map(name).collect()
}

/// Snapshots of the known pools, as `POOL/VOL@NAME`.
pub(super) fn snapshots() -> Vec<String> {
    let document = listed(&["snapshot", "list"]);
    let name = |snapshot: &Value| {
        let [pool, volume, name] = ["pool", "volume", "name"].map(|key| text(&snapshot[key]));
        Some(format!("{}/{}@{}", pool?, volume?, name?))
    };
    items(&document["snapshots"]).filter_map(name).collect()
}

/// Paths of drives, each with its pool's name.
pub(super) fn drives() -> Vec<(String, String)> {
    let document = listed(&["pool", "list"]);
    let mut all = Vec::new();
    for pool in items(&document["pools"]) {
        let name = text(&pool["name"]).unwrap_or_default();
        let paths = items(&pool["drives"]).filter_map(|drive| text(&drive["path"]));
        all.extend(paths.map(|path| (path, name.clone())));
    }
    all
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The JSON document of a command of this program; null if there is none within the limit.
fn listed(words: &[&str]) -> Value {
    let Ok(program) = env::current_exe() else { return Value::Null };
    let mut command = Command::new(program);
    command.args(words).args(["--json", "--quiet"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Value::Null };
    let output = child.stdout.take().expect("a pipe");
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(serde_json::from_reader(output).unwrap_or(Value::Null)));
    let document = receive.recv_timeout(LIMIT).unwrap_or(Value::Null);
    let _ = child.kill();
    let _ = child.wait();
    document
}

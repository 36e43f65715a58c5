//! Remedies for streams that cannot be sent or received, with the commands.

use stripewise_pool::StreamError;

/// Recommended remedy for an error of a stream.
pub(super) fn stream_hint(error: &StreamError) -> Option<String> {
    Some(match error {
        StreamError::NoStream | StreamError::Cut { at: 0 } => {
            "give it the output of `stripewise snapshot send`".to_owned()
        }
        StreamError::Version { .. } => "receive it with a newer version of this program".to_owned(),
        StreamError::Cut { .. }
        | StreamError::Corrupted { .. }
        | StreamError::GoesOn { .. }
        | StreamError::Input { .. } => {
            "send it again: what the volume has already is not written again; until then it is not served"
                .to_owned()
        }
        StreamError::NotOlder { pool, path, .. } => {
            format!("`stripewise snapshot list {pool}/{}` lists its snapshots, the oldest first", path.volume)
        }
        StreamError::InPart { pool, volume, snapshot, base } => {
            format!("send the stream of {snapshot} again, or {}", give_up(pool, volume, base.as_deref()))
        }
        StreamError::OfOther { pool, volume, snapshot, base } => {
            format!("send that stream of {snapshot} again, or {}", give_up(pool, volume, base.as_deref()))
        }
        StreamError::Running { pool, volume } => {
            format!("wait until it ends: `stripewise volume show {pool}/{volume}`")
        }
        StreamError::OtherBase { pool, volume, newest: Some(newest), .. } => format!(
            "its newest snapshot is {newest}: if it was the last one received, send from its source; if a \
             later one was taken here, `stripewise snapshot rollback -r {pool}/{volume}@…` to the one \
             received last; otherwise receive a whole stream into a new volume"
        ),
        StreamError::OtherBase { .. } => {
            "it has no snapshots: receive a whole stream into a new volume".to_owned()
        }
        StreamError::Changed { pool, base, .. } => {
            format!("what was written since is given up by: stripewise snapshot rollback {pool}/{base}")
        }
        StreamError::TooSmall { .. } => "receive a whole stream into a new volume".to_owned(),
        StreamError::IntoClone { .. } => "receive a whole stream into a new volume".to_owned(),
        StreamError::HasLayout => "leave out --layout and --reserve".to_owned(),
        _ => return None,
    })
}

/// The way to give up a part of a stream.
fn give_up(pool: &str, volume: &str, base: Option<&str>) -> String {
    match base {
        Some(base) => format!("give it up: stripewise snapshot rollback {pool}/{volume}@{base}"),
        None => format!("delete the volume: stripewise volume delete {pool}/{volume}"),
    }
}

#[cfg(test)]
mod tests {
    use stripewise_pool::SnapshotPath;

    use super::*;

    #[test]
    fn each_refused_stream_has_a_remedy() {
        let (pool, volume) = (|| "tank".to_owned(), || "v".to_owned());
        let snapshot = || "two".to_owned();
        let path = |name: &str| SnapshotPath::parse(name).expect("a snapshot");
        let part = |base: Option<&str>| StreamError::InPart {
            pool: pool(),
            volume: volume(),
            snapshot: snapshot(),
            base: base.map(str::to_owned),
        };
        let other = |newest: Option<String>| StreamError::OtherBase {
            pool: pool(),
            volume: volume(),
            source_base: "a/b@c".to_owned(),
            newest,
        };
        let cases = [
            (StreamError::NoStream, "snapshot send"),
            (StreamError::Version { found: 9, known: 1 }, "newer version"),
            (StreamError::Cut { at: 5 }, "send it again"),
            (StreamError::Corrupted { at: 5, what: "bits" }, "send it again"),
            (StreamError::GoesOn { at: 5 }, "send it again"),
            (StreamError::Input { at: 5, why: "broken".to_owned() }, "send it again"),
            (
                StreamError::NotOlder { pool: pool(), path: path("v@a"), base: "b".to_owned() },
                "snapshot list tank/v",
            ),
            (part(Some("one")), "stripewise snapshot rollback tank/v@one"),
            (part(None), "stripewise volume delete tank/v"),
            (
                StreamError::OfOther { pool: pool(), volume: volume(), snapshot: snapshot(), base: None },
                "stream of two again",
            ),
            (StreamError::Running { pool: pool(), volume: volume() }, "wait"),
            (other(Some("one".to_owned())), "newest snapshot is one"),
            (other(None), "no snapshots"),
            (
                StreamError::Changed { pool: pool(), base: path("v@one"), at: 0 },
                "stripewise snapshot rollback tank/v@one",
            ),
            (
                StreamError::TooSmall { pool: pool(), volume: volume(), capacity_bytes: 1, needed_bytes: 2 },
                "new volume",
            ),
            (StreamError::IntoClone { pool: pool(), volume: volume() }, "new volume"),
            (StreamError::HasLayout, "--layout"),
        ];
        for (error, remedy) in cases {
            let hint = stream_hint(&error).unwrap_or_else(|| panic!("{error}: no hint"));
            assert!(hint.contains(remedy), "{error}: {hint}");
        }
    }
}

//! The result store: every run of the laboratory and every import, in one SQLite file.
//! Single-threaded.
//!
//! A run is entered when it begins and each figure when it is taken, in a transaction of its own: a
//! process that is killed loses at most the figure it was taking. Expects another process that
//! writes at the same time (waits up to five seconds), a file that is no database or of a newer
//! version (refused, never overwritten), and a full disk.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use crate::records::dates::seconds_of;
use crate::records::record::{MeasurementRecord, RunRecord};
use crate::scenario::Timeline;

mod sample;

pub use sample::{Sample, Second};
use sample::{packed, unpacked};

/// The version of the tables; kept in the file as `user_version`.
const STORE_VERSION: i64 = 3;
/// The store is its owner's alone: runs name hosts, paths and programs.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Time to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);

const TABLES: &str = "
    CREATE TABLE runs (
        run TEXT PRIMARY KEY, date TEXT NOT NULL, profile TEXT NOT NULL, tool TEXT NOT NULL,
        target TEXT NOT NULL, finished INTEGER NOT NULL, environment TEXT NOT NULL, notes TEXT NOT NULL);
    CREATE TABLE measurements (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, position INTEGER NOT NULL,
        document TEXT NOT NULL, PRIMARY KEY (run, position));
    CREATE TABLE samples (
        run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, position INTEGER NOT NULL, sample INTEGER NOT NULL,
        started_s REAL NOT NULL, seconds REAL NOT NULL, bytes INTEGER NOT NULL, requests INTEGER NOT NULL,
        errors INTEGER NOT NULL, cpu_seconds REAL, read_latency BLOB, write_latency BLOB, per_second TEXT NOT NULL,
        PRIMARY KEY (run, position, sample));
    CREATE INDEX runs_by_date ON runs (date);";

/// Tables that version 2 adds.
const TABLES_OF_2: &str = "
    CREATE TABLE timelines (
        run TEXT PRIMARY KEY REFERENCES runs ON DELETE CASCADE, document TEXT NOT NULL);";

/// Version 3 adds no table: seconds of samples, and pieces of timelines, have latencies.
const TABLES_OF_3: &str = "";

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be used.
    #[error("result store {path}: {why}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why, in words.
        why: String,
    },
    /// Its folder cannot be made.
    #[error("cannot make {folder} for the result store: {source}")]
    NoFolder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No run of that name, or several that begin with it.
    #[error("{0}")]
    NoRun(String),
    /// SQLite's own error.
    #[error("result store {path}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Error of SQLite.
        #[source]
        source: rusqlite::Error,
    },
}

impl StoreError {
    /// Advice on how to resolve the error.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "move the file away to begin a new store; nothing in it was changed",
            Self::NoFolder { .. } => "STRIPEWISE_HOME names the folder",
            Self::NoRun(_) => "stripewise lab list shows the runs there are",
            Self::Sqlite { .. } => "another command may be writing to it; try again",
        }
    }
}

/// A line of the list of runs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ListedRun {
    /// Its name.
    pub run: String,
    /// The method.
    pub profile: String,
    /// The program that drove the load.
    pub tool: String,
    /// Object of the measurement.
    pub target: String,
    /// When it began.
    pub date: String,
    /// True if the run was completed.
    pub finished: bool,
}

/// An open store.
pub struct Store {
    path: PathBuf,
    database: Connection,
}

impl Store {
    /// Opens the store at `path`, or makes it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let unusable = |why: String| StoreError::Unusable { path: path.to_owned(), why };
        if let Some(folder) = path.parent() {
            let no_folder = |source| StoreError::NoFolder { folder: folder.to_owned(), source };
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(no_folder)?;
        }
        // SQLite gives the files that it creates beside the database the same mode.
        let made = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
        if made.is_err() {
            // An earlier version may have made it with another mode. SQLite reports whether it is
            // usable.
            let _ = std::fs::set_permissions(path, Permissions::from_mode(FILE_MODE));
        }
        let database = Connection::open(path).map_err(|error| unusable(error.to_string()))?;
        let store = Self { path: path.to_owned(), database };
        store.prepare().map_err(|error| match error {
            StoreError::Sqlite { source, .. } if !is_busy(&source) => unusable(source.to_string()),
            other => other,
        })?;
        Ok(store)
    }

    fn prepare(&self) -> Result<(), StoreError> {
        let database = &self.database;
        self.try_to(|| {
            database.busy_timeout(PATIENCE)?;
            database.pragma_update(None, "journal_mode", "WAL")?;
            database.pragma_update(None, "foreign_keys", true)
        })?;
        let version = || database.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
        if self.try_to(version)? < STORE_VERSION {
            // Under the lock of a write, as another process may be making them too.
            self.try_to(|| {
                database.execute_batch("BEGIN IMMEDIATE")?;
                for (had, tables) in [(0, TABLES), (1, TABLES_OF_2), (2, TABLES_OF_3)] {
                    if version()? == had {
                        database.execute_batch(tables)?;
                        database.pragma_update(None, "user_version", had + 1)?;
                    }
                }
                database.execute_batch("COMMIT")
            })?;
        }
        let found = self.try_to(version)?;
        if found > STORE_VERSION {
            return Err(StoreError::Unusable {
                path: self.path.clone(),
                why: format!("it is of version {found}, and this program knows {STORE_VERSION}"),
            });
        }
        Ok(())
    }

    fn try_to<T>(&self, work: impl FnOnce() -> rusqlite::Result<T>) -> Result<T, StoreError> {
        work().map_err(|source| match is_broken(&source) {
            true => StoreError::Unusable { path: self.path.clone(), why: source.to_string() },
            false => StoreError::Sqlite { path: self.path.clone(), source },
        })
    }

    /// Enters a run; its measurements, too, if there are some already.
    pub fn begin(&self, run: &RunRecord) -> Result<(), StoreError> {
        self.try_to(|| {
            let all = self.database.unchecked_transaction()?;
            all.execute(
                "INSERT INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    run.run,
                    run.date,
                    run.profile,
                    run.tool,
                    run.target,
                    run.finished,
                    json(&run.environment),
                    json(&run.notes)
                ],
            )?;
            for (position, measurement) in run.measurements.iter().enumerate() {
                put(&all, &run.run, position, measurement)?;
            }
            all.commit()
        })
    }

    /// Enters a figure, or what it is now, with the sample just taken.
    pub fn record(
        &self,
        run: &str,
        position: usize,
        measurement: &MeasurementRecord,
        sample: Option<&Sample>,
    ) -> Result<(), StoreError> {
        self.try_to(|| {
            let both = self.database.unchecked_transaction()?;
            put(&both, run, position, measurement)?;
            if let Some(sample) = sample {
                both.execute(
                    "INSERT INTO samples SELECT ?1, ?2, count(*), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
                         FROM samples WHERE run = ?1 AND position = ?2",
                    params![
                        run,
                        position as i64,
                        sample.started_s,
                        sample.seconds,
                        sample.bytes as i64,
                        sample.requests as i64,
                        sample.errors as i64,
                        sample.cpu_seconds,
                        sample.read_latency.as_ref().map(packed),
                        sample.write_latency.as_ref().map(packed),
                        json(&sample.per_second),
                    ],
                )?;
            }
            both.commit()
        })
    }

    /// Keeps what became of the load over time.
    pub fn keep_timeline(&self, run: &str, timeline: &Timeline) -> Result<(), StoreError> {
        let text = json(timeline);
        self.try_to(|| {
            self.database
                .execute("INSERT OR REPLACE INTO timelines VALUES (?1, ?2)", params![run, text])
                .map(drop)
        })
    }

    /// Marks a run as complete, with what there is to say about it.
    pub fn finish(&self, run: &str, notes: &[String]) -> Result<(), StoreError> {
        let text = json(notes);
        self.try_to(|| {
            self.database
                .execute("UPDATE runs SET finished = 1, notes = ?2 WHERE run = ?1", params![run, text])
                .map(drop)
        })
    }

    /// All runs, the newest first; of one second, the one that was begun last. Runs without a date
    /// that can be read come last.
    pub fn list(&self) -> Result<Vec<ListedRun>, StoreError> {
        let mut runs = self.listed()?;
        // Dates of imports were once stored as their tools print them.
        runs.sort_by_cached_key(|run| std::cmp::Reverse(seconds_of(&run.date)));
        Ok(runs)
    }

    fn listed(&self) -> Result<Vec<ListedRun>, StoreError> {
        self.try_to(|| {
            let mut asked = self
                .database
                .prepare("SELECT run, profile, tool, target, date, finished FROM runs ORDER BY rowid DESC")?;
            let line = |row: &rusqlite::Row<'_>| {
                Ok(ListedRun {
                    run: row.get(0)?,
                    profile: row.get(1)?,
                    tool: row.get(2)?,
                    target: row.get(3)?,
                    date: row.get(4)?,
                    finished: row.get(5)?,
                })
            };
            asked.query_map([], line)?.collect()
        })
    }

    /// The run called `name`, or the only one whose name begins so; `latest` is the newest.
    pub fn find(&self, name: &str) -> Result<String, StoreError> {
        let runs = self.list()?;
        if name == "latest" {
            let newest = runs.first().map(|run| run.run.clone());
            return newest.ok_or_else(|| StoreError::NoRun("there are no runs yet".into()));
        }
        if runs.iter().any(|run| run.run == name) {
            return Ok(name.to_owned());
        }
        let fitting: Vec<&str> =
            runs.iter().map(|run| run.run.as_str()).filter(|run| run.starts_with(name)).collect();
        match fitting.as_slice() {
            [only] if !name.is_empty() => Ok((*only).to_owned()),
            [] => Err(StoreError::NoRun(format!("there is no run `{name}`"))),
            several => Err(StoreError::NoRun(format!("`{name}` fits {} runs", several.len()))),
        }
    }

    /// A run with all its figures.
    pub fn load(&self, run: &str) -> Result<RunRecord, StoreError> {
        let found = self.try_to(|| {
            let row = |row: &rusqlite::Row<'_>| {
                Ok(RunRecord {
                    run: row.get(0)?,
                    date: row.get(1)?,
                    profile: row.get(2)?,
                    tool: row.get(3)?,
                    target: row.get(4)?,
                    finished: row.get(5)?,
                    environment: from_json(&row.get::<_, String>(6)?)?,
                    notes: from_json(&row.get::<_, String>(7)?)?,
                    measurements: Vec::new(),
                    timeline: None,
                })
            };
            self.database.query_row("SELECT * FROM runs WHERE run = ?1", [run], row).optional()
        })?;
        let mut record = found.ok_or_else(|| StoreError::NoRun(format!("there is no run `{run}`")))?;
        record.measurements = self.try_to(|| {
            let mut asked = self
                .database
                .prepare("SELECT document FROM measurements WHERE run = ?1 ORDER BY position")?;
            asked.query_map([run], |row| from_json(&row.get::<_, String>(0)?))?.collect()
        })?;
        record.timeline = self.try_to(|| {
            let asked = "SELECT document FROM timelines WHERE run = ?1";
            self.database.query_row(asked, [run], |row| from_json(&row.get::<_, String>(0)?)).optional()
        })?;
        Ok(record)
    }

    /// The samples of a figure, in the order they were taken.
    pub fn samples(&self, run: &str, position: usize) -> Result<Vec<Sample>, StoreError> {
        self.try_to(|| {
            let mut asked = self.database.prepare(
                "SELECT started_s, seconds, bytes, requests, errors, cpu_seconds, read_latency, write_latency, per_second
                     FROM samples WHERE run = ?1 AND position = ?2 ORDER BY sample",
            )?;
            let sample = |row: &rusqlite::Row<'_>| {
                Ok(Sample {
                    started_s: row.get(0)?,
                    seconds: row.get(1)?,
                    bytes: row.get::<_, i64>(2)? as u64,
                    requests: row.get::<_, i64>(3)? as u64,
                    errors: row.get::<_, i64>(4)? as u64,
                    cpu_seconds: row.get(5)?,
                    read_latency: row.get::<_, Option<Vec<u8>>>(6)?.as_deref().and_then(unpacked),
                    write_latency: row.get::<_, Option<Vec<u8>>>(7)?.as_deref().and_then(unpacked),
                    per_second: from_json(&row.get::<_, String>(8)?)?,
                })
            };
            asked.query_map(params![run, position as i64], sample)?.collect()
        })
    }

    /// Takes a run out of the store that ended before anything was measured. Best effort: why it
    /// ended counts more.
    pub fn forget_empty(&self, run: &str) {
        let asked =
            "DELETE FROM runs WHERE run = ?1 AND NOT EXISTS (SELECT 1 FROM measurements WHERE run = ?1)";
        let _ = self.database.execute(asked, [run]);
    }

    /// Takes a run out of the store.
    pub fn delete(&self, run: &str) -> Result<(), StoreError> {
        self.try_to(|| self.database.execute("DELETE FROM runs WHERE run = ?1", [run]).map(drop))
    }
}

fn is_broken(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
    )
}

fn put(
    database: &Connection,
    run: &str,
    position: usize,
    measurement: &MeasurementRecord,
) -> rusqlite::Result<()> {
    database
        .execute(
            "INSERT OR REPLACE INTO measurements VALUES (?1, ?2, ?3)",
            params![run, position as i64, json(measurement)],
        )
        .map(drop)
}

fn json<T: serde::Serialize + ?Sized>(data: &T) -> String {
    serde_json::to_string(data).expect("plain data becomes JSON")
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;
    use crate::records::record::{Operation, Unit};

    fn run(name: &str, date: &str) -> RunRecord {
        RunRecord {
            run: name.into(),
            target: "/dev/sdx".into(),
            profile: "crystaldiskmark".into(),
            tool: "native".into(),
            date: date.into(),
            ..RunRecord::default()
        }
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lab/results.sqlite");
        (folder, path)
    }

    #[test]
    fn recorded_runs_survive_reopening_the_store() {
        let (_folder, path) = folder();
        let mut histogram = Histogram::<u64>::new(3).expect("valid digits");
        histogram.record(123_456).expect("in range");
        {
            let store = Store::open(&path).expect("a store");
            store.begin(&run("a1", "2026-01-01T00:00:00Z")).expect("begun");
            let figure = MeasurementRecord::empty("seq_read", Operation::Read).with_runs(vec![100.0]);
            let sample = Sample {
                started_s: 1.0,
                seconds: 5.0,
                bytes: 500_000_000,
                requests: 500,
                errors: 0,
                cpu_seconds: Some(0.5),
                read_latency: Some(histogram.clone()),
                write_latency: None,
                per_second: vec![Second { bytes: 100_000_000, mean_us: 120.0, longest_us: 900.0 }; 5],
            };
            store.record("a1", 0, &figure, Some(&sample)).expect("recorded");
            let figure = figure.with_runs(vec![100.0, 102.0]);
            store.record("a1", 0, &figure, Some(&sample)).expect("recorded");
            // Not finished: the process dies here.
        }
        let store = Store::open(&path).expect("the store");
        let record = store.load("a1").expect("the run");
        assert!(!record.finished);
        assert_eq!(record.measurements[0].runs, [100.0, 102.0]);
        assert_eq!(record.measurements[0].mb_per_s, Some(101.0));
        assert_eq!(record.measurements[0].unit, Unit::MbPerS);
        let samples = store.samples("a1", 0).expect("samples");
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[1].read_latency.as_ref(), Some(&histogram));
        assert_eq!((samples[0].per_second.len(), samples[0].write_latency.is_none()), (5, true));
        store.finish("a1", &["done".into()]).expect("finished");
        let record = store.load("a1").expect("the run");
        assert!(record.finished && record.notes == ["done"]);
    }

    #[test]
    fn runs_are_found_by_the_beginning_of_their_name() {
        let (_folder, path) = folder();
        let store = Store::open(&path).expect("a store");
        for (name, date) in
            [("a1", "2026-01-01"), ("a3", "2026-01-03"), ("a2", "2026-01-03"), ("b1", "2026-01-02")]
        {
            store.begin(&run(name, date)).expect("begun");
        }
        let names: Vec<String> = store.list().expect("a list").into_iter().map(|run| run.run).collect();
        assert_eq!(names, ["a2", "a3", "b1", "a1"], "of one second, the one begun last is the newest");
        assert_eq!(store.find("b").expect("one"), "b1");
        assert_eq!(store.find("latest").expect("the newest"), "a2");
        assert!(store.find("a").expect_err("three").to_string().contains("fits 3"));
        assert!(store.find("c").expect_err("none").to_string().contains("no run `c`"));
        let figure = MeasurementRecord::empty("seq_read", Operation::Read).with_runs(vec![100.0]);
        store.record("a1", 0, &figure, None).expect("recorded");
        ["a1", "b1"].iter().for_each(|name| store.forget_empty(name));
        assert!(store.load("b1").is_err() && store.load("a1").is_ok(), "only what has no figure");
        store.delete("a1").expect("deleted");
        assert!(store.load("a1").is_err());
        assert!(store.begin(&run("a2", "x")).is_err(), "names are unique");
    }

    #[test]
    fn the_latest_run_has_the_newest_instant() {
        let (_folder, path) = folder();
        let store = Store::open(&path).expect("a store");
        for (name, date) in [
            ("new", "2026-11-20T00:00:00Z"),
            ("old", "2026/01/02 03:04:05 UTC"),
            ("fio", "Thu Oct  9 08:53:20 2025"),
            ("none", ""),
        ] {
            store.begin(&run(name, date)).expect("begun");
        }
        let names: Vec<String> = store.list().expect("a list").into_iter().map(|run| run.run).collect();
        assert_eq!(names, ["new", "old", "fio", "none"]);
    }

    #[test]
    fn foreign_files_are_refused_and_left_unchanged() {
        let (_folder, path) = folder();
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        let text = "this is a letter to a friend, not a database. ".repeat(200);
        std::fs::write(&path, &text).expect("written");
        let error = Store::open(&path).err().expect("refused");
        assert!(error.to_string().contains("not a database"), "{error}");
        assert!(error.hint().contains("move the file away"));
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), text);
        std::fs::remove_file(&path).expect("removed");
        let store = Store::open(&path).expect("a store");
        store.database.pragma_update(None, "user_version", 99).expect("set");
        drop(store);
        assert!(Store::open(&path).err().expect("refused").to_string().contains("version 99"));
    }

    #[test]
    fn a_damaged_or_unreachable_store_is_reported() {
        let (folder, path) = folder();
        let store = Store::open(&path).expect("a store");
        (0..200).for_each(|number| store.begin(&run(&format!("a{number}"), "2026")).expect("begun"));
        drop(store);
        let mut bytes = std::fs::read(&path).expect("the file");
        bytes[4096..].fill(0xaa);
        std::fs::write(&path, bytes).expect("written");
        let found = Store::open(&path).and_then(|store| store.list());
        let error = found.expect_err("damaged");
        assert!(
            error.to_string().contains("malformed") && error.hint().contains("move the file away"),
            "{error}"
        );
        let error = Store::open(&folder.path().join("lab/results.sqlite/sub/x")).err().expect("no folder");
        assert!(error.hint().contains("STRIPEWISE_HOME"), "{error}");
    }

    #[test]
    fn a_version_1_store_keeps_runs_and_gains_timelines() {
        let (_folder, path) = folder();
        let store = Store::open(&path).expect("a store");
        store.begin(&run("a1", "2026-01-01")).expect("begun");
        store.database.execute_batch("DROP TABLE timelines").expect("as it was");
        store.database.pragma_update(None, "user_version", 1).expect("set");
        drop(store);
        let store = Store::open(&path).expect("a store");
        let timeline = Timeline { step_seconds: 1.0, mb_per_s: vec![1.0, 2.0], ..Timeline::default() };
        store.keep_timeline("a1", &timeline).expect("kept");
        assert_eq!(store.load("a1").expect("still there").timeline, Some(timeline));
    }

    #[test]
    fn older_timelines_load_with_bytes_only() {
        let old: Vec<Second> = serde_json::from_str("[5, 7]").expect("bytes");
        assert_eq!(old, [5, 7].map(|bytes| Second { bytes, ..Second::default() }));
        let new = vec![Second { bytes: 5, mean_us: 1.5, longest_us: 9.0 }];
        assert_eq!(serde_json::from_str::<Vec<Second>>(&json(&new)).expect("all"), new);
    }

    #[test]
    fn two_processes_can_use_the_store_at_once() {
        let (_folder, path) = folder();
        let (one, other) = (Store::open(&path).expect("a store"), Store::open(&path).expect("again"));
        one.begin(&run("a1", "2026-01-01")).expect("begun");
        other.begin(&run("a2", "2026-01-02")).expect("begun");
        assert_eq!(one.list().expect("a list").len(), 2);
    }
}

//! PostgreSQL on a volume whose daemon is killed repeatedly under load, at times with a drive
//! missing. Each time the database must recover with every acknowledged transaction.
//!
//! Two kinds of clients: pgbench, whose sums must match, and writers that record, outside of the
//! volume, the number of each row whose commit was acknowledged.
//!
//! After a kill -9 the kernel's caches of the dead volume must be dropped: everything is unmounted
//! before the next start.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::drives::Drives;
use crate::kit::Sandbox;
use crate::kit::daemon::{until_within, wait};
use crate::kit::mount::Mount;
use crate::kit::programs::{is_possible, program, search_path, succeeds};
use crate::span::{Running, Span};

/// Time limit for the database to answer after a crash.
const RECOVERED_WITHIN: Duration = Duration::from_secs(120);
/// Time limit for clients to end without their server, and for the server to end without its files.
const ENDED_WITHIN: Duration = Duration::from_secs(60);
/// Number of writers that record acknowledged rows.
const WRITERS: u64 = 3;
/// Number of row numbers reserved for one writer in one round.
const ROUND_ROWS: u64 = 10_000_000;
const USER: &str = "postgres";
/// Settings: durable commits, frequent checkpoints, page checksums.
const SETTINGS: &str = "listen_addresses = ''
fsync = on
synchronous_commit = on
full_page_writes = on
max_wal_size = 64MB
min_wal_size = 32MB
checkpoint_timeout = 30s
shared_buffers = 24MB
max_connections = 30
";

/// Directories of PostgreSQL's programs, newest first: Debian keeps the server's off the path.
fn programs() -> Option<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|folder| folder.join("initdb").exists() && folder.join("pgbench").exists())
        .collect();
    folders.sort();
    let found = folders.pop();
    if found.is_none() {
        eprintln!("passed over: this test needs postgresql");
    }
    found
}

/// A database with its files on a volume; its socket, log and clients are elsewhere.
struct Database<'a> {
    sandbox: &'a Sandbox,
    programs: PathBuf,
    /// Directory accessible to the database's user, who has no access to that of the test.
    outside: tempfile::TempDir,
    server: Option<Child>,
}

impl<'a> Database<'a> {
    fn new(sandbox: &'a Sandbox, programs: PathBuf) -> Self {
        let outside = tempfile::tempdir().expect("a folder");
        let database = Self { sandbox, programs, outside, server: None };
        succeeds(&["chmod", "755", &database.outside("")]);
        for folder in ["m", "run"] {
            std::fs::create_dir(database.outside.path().join(folder)).expect("made");
        }
        succeeds(&["chown", USER, &database.outside("run")]);
        database
    }

    fn outside(&self, name: &str) -> String {
        self.outside.path().join(name).display().to_string()
    }

    fn data(&self) -> String {
        self.outside("m/data")
    }

    fn mount(&self) -> Mount {
        Mount::start_at(
            self.sandbox,
            &format!("mount tank/db {} --fs ext4", self.outside("m")),
            &self.outside.path().join("m"),
        )
    }

    /// A program of PostgreSQL, run as its user.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--"]).arg(self.programs.join(name));
        command.env_clear().env("PATH", search_path()).env("LC_ALL", "C").env("PGHOST", self.outside("run"));
        command.env("PGUSER", USER).env("PGDATABASE", USER).env("PGCONNECT_TIMEOUT", "5");
        command.current_dir(self.outside.path()).stdin(Stdio::null());
        command
    }

    fn succeeds(&self, name: &str, words: &[&str]) -> String {
        let output = self.command(name).args(words).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{name} {words:?}: {}{text}\n{}",
            String::from_utf8_lossy(&output.stderr),
            self.log()
        );
        text
    }

    fn ask(&self, sql: &str) -> String {
        self.succeeds("psql", &["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-c", sql]).trim().to_owned()
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.outside.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn make(&self) {
        std::fs::create_dir(self.data()).expect("made");
        succeeds(&["chown", USER, &self.data()]);
        self.succeeds(
            "initdb",
            &["-D", &self.data(), "--data-checksums", "--auth=trust", "-E", "UTF8", "--locale=C"],
        );
        let mut settings = SETTINGS.to_owned();
        settings += &format!("unix_socket_directories = '{}'\n", self.outside("run"));
        let file = format!("{}/postgresql.conf", self.data());
        let mut file = std::fs::OpenOptions::new().append(true).open(file).expect("there");
        // A crash may lose data that was not made durable.
        file.write_all(settings.as_bytes()).and_then(|()| file.sync_all()).expect("written");
    }

    /// Starts the server and waits until it accepts connections.
    fn start(&mut self) {
        let log =
            File::options().create(true).append(true).open(self.outside.path().join("log")).expect("a log");
        let mut server = self.command("postgres");
        server.args(["-D", &self.data()]).stdout(log.try_clone().expect("another handle")).stderr(log);
        self.server = Some(server.spawn().expect("started"));
        until_within(RECOVERED_WITHIN, "the database answers", || {
            let ended = self.server.as_mut().and_then(|server| server.try_wait().expect("waited"));
            assert!(ended.is_none(), "PostgreSQL ended: {ended:?}\n{}", self.log());
            self.command("pg_isready").args(["-q"]).status().expect("it starts").success()
        });
    }

    /// Stops the server with a signal, and with kill -9 if it does not exit.
    fn end(&mut self, signal: &str) {
        let Some(mut server) = self.server.take() else { return };
        program(&["kill", signal, &server.id().to_string()]);
        if wait(&mut server, ENDED_WITHIN).is_none() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Drops the kernel's caches of the volume after its daemon died.
    fn forget_the_dead_volume(&mut self, mount: Mount) {
        self.end("-QUIT");
        let folder = mount.folder.display().to_string();
        until_within(ENDED_WITHIN, "the dead file system is unused", || {
            program(&["umount", &folder]).status.success()
        });
        drop(mount);
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        self.end("-QUIT");
    }
}

/// A session that ends at the first error.
fn open_session(database: &Database<'_>) -> Running {
    let mut psql = database.command("psql");
    psql.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1"]);
    psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    Running::start(&mut psql, Duration::ZERO)
}

/// Inserts rows, one transaction each, until the session ends. Records the numbers of acknowledged
/// rows.
fn write_rows(mut input: ChildStdin, answers: ChildStdout, first: u64) -> Vec<u64> {
    let mut answers = BufReader::new(answers).lines();
    let mut acknowledged = Vec::new();
    for number in first..first + ROUND_ROWS {
        // The content of a row follows from its number.
        let sql = format!(
            "INSERT INTO acknowledged VALUES ({number}, repeat(md5('{number}'), {})) RETURNING id;\n",
            1 + number % 40
        );
        if input.write_all(sql.as_bytes()).is_err() {
            break;
        }
        match answers.next() {
            Some(Ok(line)) if line == number.to_string() => acknowledged.push(number),
            Some(Ok(line)) => panic!("psql answers {line:?} to {number}"),
            _ => break,
        }
    }
    acknowledged
}

/// Runs the load until the volume's daemon is killed. Returns the numbers of acknowledged rows.
fn load_until_killed(database: &Database<'_>, mount: &mut Mount, round: u64, length: Duration) -> Vec<u64> {
    let log = database.outside.path().join("pgbench.log");
    let said = File::create(&log).expect("made");
    let mut pgbench = database.command("pgbench");
    pgbench.args(["-n", "-c", "4", "-T", &(length.as_secs() + 600).to_string()]);
    pgbench.stdout(said.try_clone().expect("another handle")).stderr(said);
    let mut pgbench = Running::start(&mut pgbench, length);
    std::thread::scope(|scope| {
        // The threads end with their sessions.
        let mut sessions: Vec<Running> = (0..WRITERS).map(|_| open_session(database)).collect();
        let writers: Vec<_> = (round * WRITERS..)
            .zip(&mut sessions)
            .map(|(number, session)| {
                let (input, answers) = session.pipes();
                scope.spawn(move || write_rows(input, answers, number * ROUND_ROWS))
            })
            .collect();
        std::thread::sleep(length);
        mount.kill();
        sessions
            .iter_mut()
            .for_each(|session| assert!(!session.wait().success(), "a session outlives its server"));
        assert!(!pgbench.wait().success(), "pgbench lost its server");
        writers.into_iter().flat_map(|writer| writer.join().expect("it ended")).collect()
    })
}

fn all_acknowledged_are_there(database: &Database<'_>, acknowledged: &BTreeSet<u64>) {
    let there =
        database.ask("SELECT id FROM acknowledged WHERE payload = repeat(md5(id::text), (1 + id % 40)::int)");
    let there: BTreeSet<u64> = there.lines().map(|line| line.parse().expect("a number")).collect();
    let lost: Vec<&u64> = acknowledged.difference(&there).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged rows are lost: {lost:?}", lost.len(), acknowledged.len());
    let all: usize = database.ask("SELECT count(*) FROM acknowledged").parse().expect("a number");
    assert_eq!(all, there.len(), "rows that hold something else");
    let sums = database.ask(
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
            (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)",
    );
    let sums: Vec<&str> = sums.split('|').collect();
    assert!(sums.iter().all(|sum| *sum == sums[0]), "pgbench's sums differ: {sums:?}");
}

#[test]
fn a_database_keeps_its_commits_when_daemon_is_killed() {
    if !is_possible(&["mkfs.ext4", "e2fsck", "losetup", "setpriv"]) {
        return;
    }
    let Some(programs) = programs() else { return };
    if !program(&["id", USER]).status.success() {
        eprintln!("passed over: this test needs the user {USER}");
        return;
    }
    let sandbox = Sandbox::new();
    let mut drives = Drives::pool(&sandbox, 4, "256MiB");
    sandbox.ok("volume create tank/db --layout raid5 --size 512MiB");
    let mut database = Database::new(&sandbox, programs);
    let mut mount = database.mount();
    database.make();
    database.start();
    database.succeeds("pgbench", &["-i", "-q", "-s", "1"]);
    database.ask("CREATE TABLE acknowledged (id bigint PRIMARY KEY, payload text)");

    let span = Span::begin();
    let (mut acknowledged, mut round, mut slowest) = (BTreeSet::new(), 0, Duration::ZERO);
    while round == 0 || (span.is_long() && !span.is_over()) {
        // In every second round a drive is missing, also when the daemon is killed; the next round
        // rebuilds it under load.
        let gone = (round % 2 == 0).then(|| drives.pull());
        let length = Duration::from_millis(if span.is_long() { 4000 + 3700 * (round % 5) } else { 3000 });
        let new = load_until_killed(&database, &mut mount, round, length);
        assert!(!new.is_empty(), "nothing was acknowledged\n{}", database.log());
        acknowledged.extend(new);
        database.forget_the_dead_volume(mount);
        let begin = Instant::now();
        mount = database.mount();
        if let Some(gone) = gone {
            drives.replace(&gone);
        }
        database.start();
        slowest = slowest.max(begin.elapsed());
        all_acknowledged_are_there(&database, &acknowledged);
        round += 1;
    }
    database.succeeds("pg_amcheck", &["--all", "--install-missing", "--heapallindexed"]);
    database.end("-INT");
    database.succeeds("pg_checksums", &["--check", "-D", &database.data()]);
    mount.end();
    drives_are_right(&sandbox);
    println!(
        "PostgreSQL: {} s, killed {round} times, {} drives lost and replaced; {} transactions acknowledged, all there; back within {} s",
        span.elapsed().as_secs(),
        drives.replaced,
        acknowledged.len(),
        slowest.as_secs()
    );
}

/// Checks the volume and the file system below the database.
fn drives_are_right(sandbox: &Sandbox) {
    let mount = Mount::start(sandbox, "mount tank @m");
    let file: &Path = &mount.file("db");
    succeeds(&["e2fsck", "-f", "-n", &file.display().to_string()]);
    mount.end();
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert!(scrub.text().contains("no errors found"), "{}", scrub.text());
}

//! Broken and malicious files: an error, in bounded time and memory.

use std::time::{Duration, Instant};

use stripewise_lab::import::{MAX_IMPORT_BYTES, import};

/// Longest time for a file of a few MB, with a debug program on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn hostile_files_end_with_an_error_soon() {
    let many = |part: &str, bytes: usize| part.repeat(bytes / part.len());
    for (name, text) in [
        ("digits", many("1234567890", 8 << 20)),
        ("a JSON number of digits", format!("{{\"jobs\":[{}]}}", many("9", 4 << 20))),
        ("nesting", format!("{{\"jobs\":{}", many("[", 900_000))),
        ("nested documents", many("{\"jobs\":[", 400_000)),
        ("documents without an end", many("{\"jobs\":1,\n", 1 << 20)),
        ("an open string", format!("{{\"jobs\":\"{}", many("{\"jobs\" ", 1 << 20))),
        ("elements", format!("<Results>{}", many("<a>", 900_000))),
        ("starts of elements", many("<Results>", 4 << 20)),
        ("a heading", format!("-Per Char- %CPU\nMachine\n{}", many("1 ", 4 << 20))),
        ("lines of a report", many("SEQ 1MiB (Q= 1, T= 1): 1,1,1 MB/s\n", 2 << 20)),
        ("quotes", format!("a,value,unit\n{}", many("\"\"", 4 << 20))),
        ("rows without columns", format!("a,value,unit\n{}", many("x\n", 2 << 20))),
        ("empty lines", many("\n", 8 << 20)),
        ("tables of diskspd", many("thread | I/Os\nRead IO\n0 | x | y\n", 1 << 20)),
        (
            "rows of IOMeter",
            format!("'Target Type,x,Access Specification Name\n{}", many("ALL,a,b,\n", 1 << 20)),
        ),
        ("escapes", many("\u{1b}[", 4 << 20)),
    ] {
        let begin = Instant::now();
        assert!(import(text.as_bytes()).is_err(), "{name}");
        assert!(begin.elapsed() < PATIENCE, "{name}: {:?}", begin.elapsed());
    }
    assert!(import(&vec![b';'; MAX_IMPORT_BYTES as usize]).is_err());
}

#[test]
fn every_cut_of_a_file_is_read_or_refused() {
    let whole = "fio: w\n{\"fio version\":\"fio-3\",\"jobs\":[{\"jobname\":\"ä\",\"read\":{\"bw\":nan,\"iops\":1}}]}\n\
        3;fio-3.33;db;0;0;1;2;3\ndb: (groupid=0, jobs=1): err= 0: pid=1: Fri Nov 27 09:06:16 2026\n  read: IOPS=1k, BW=1.0MiB/s (1.0MB/s)(1MiB/1msec)\n\
        <Results><TimeSpan><TestTimeSeconds>1</TestTimeSeconds></TimeSpan></Results>\n\
        actual test time: 1s\nRead IO\nthread | I/Os\n 0 | 1 | 2 | 3 | x (1GiB)\ntotal: 1 | 2\n\
        [Read]\nSEQ 1MiB (Q= 1, T= 1): 1.000 MB/s [ 1 IOPS] < 1 us>\n\
        'Target Type;Access Specification Name;IOps;MBps\nALL;a;1,5;2,5\n'size,1\n\
        Version 1.03 ------Sequential Output\nMachine Size K/sec %CP K/sec %CP\nlab 4G ü 1\n\
        1.98,2.00a,lab,1,1,4G\nFile operations:\nreads/s: 1\nLatency (ms):\navg: 1ms\n1 seconds total\n1 seconds of transactions (5 per second)\n";
    for end in 0..=whole.len() {
        let bytes = &whole.as_bytes()[..end];
        let _ = import(bytes);
        let _ = import(&whole.as_bytes()[end..]);
        // Every second byte as well: other columns, other numbers.
        let half: Vec<u8> = bytes.iter().copied().step_by(2).collect();
        let _ = import(&half);
    }
}

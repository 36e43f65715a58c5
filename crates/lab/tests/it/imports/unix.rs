//! bonnie, bonnie++, PostMark, sysbench.

use stripewise_lab::record::{Operation, Unit};

use super::{figure, is_noted, mb_per_s, names, refused, run_of};

const BONNIE: &str = "\
              -------Sequential Output-------- ---Sequential Input-- --Random--
              -Per Char- --Block--- -Rewrite-- -Per Char- --Block--- --Seeks---
Machine    MB K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU  /sec %CPU
";

fn bonnie_line(machine: &str, block_write: u32) -> String {
    format!("{machine} 30000 98.1 {block_write} 24.0 25000 12.9 31000 93.1 90000 17.2 391.4  2.0\n")
}

#[test]
fn bonnie_lines_of_one_machine_are_runs() {
    let lines: String = [50_000, 70_000, 60_000].map(|rate| bonnie_line("       1*2000", rate)).concat();
    for text in [
        format!("{BONNIE}{lines}"),
        format!("$ bonnie\n{BONNIE}{lines}\n$ exit\n"),
        format!("{BONNIE}{lines}").replace('.', ","),
    ] {
        let run = run_of(&text);
        let write = figure(&run, "block_write");
        assert_eq!((write.runs.len(), write.mb_per_s), (3, Some(61.44)), "{text}");
        assert_eq!((run.measurements.len(), figure(&run, "seeks").iops), (12, Some(391.4)));
        assert_eq!(
            (figure(&run, "rewrite_cpu").runs[0], run.environment["bonnie_machine_and_mb"].trim()),
            (12.9, "1*2000")
        );
    }
    let two = run_of(&format!(
        "{BONNIE}{}{BONNIE}{}",
        bonnie_line("one 100", 50_000),
        bonnie_line("two 100", 70_000)
    ));
    assert_eq!((mb_per_s(&two, "one: block_write"), mb_per_s(&two, "two: block_write")), (51.2, 71.68));
    assert!(refused("Machine MB -Per Char- %CPU\n 1 2 3\n").contains("no line of twelve figures"));
    assert!(
        refused(&format!("{BONNIE}{}", bonnie_line("x 100", 5).replace("25000", "fast"))).contains("line 4")
    );
}

/// Figures of bonnie++ from the first rate to the number of files.
const BLOCKS: &str = "501,98,210000,30,90000,20,1200,99,400000,40,900.5,10,16,";
const FILES: &str = "12000,50,+++++,+++,20000,60,11000,50,+++++,+++,19000,60";
const TIMES: &str = ",18ms,20us,1s,2ms,3us,4ms,5us,6us,7us,8us,9us,10us";

#[test]
fn bonnie_plus_plus_columns_follow_the_format() {
    for line in [
        format!("1.98,2.00a,lab,1,1700000000,4G,,8192,5,{BLOCKS},,,,{FILES}{TIMES}"),
        format!("1.98,1.98,lab,1,1700000000,4G,64k,8192,5,{BLOCKS},,,,{FILES}{TIMES}"),
        format!("2,2.00,lab,1,1700000000,4G,,8192,5,{BLOCKS},,,,{FILES}{TIMES}"),
        format!("1.97,1.97.3,lab,1,1700000000,4G,,{BLOCKS},,,,{FILES}{TIMES}"),
        format!("1.96,1.96,lab,1,1700000000,4G,64k,{BLOCKS},,,,{FILES}{TIMES}"),
        format!("lab,4G,{BLOCKS}{FILES}"),
        format!("lab,4G,{BLOCKS}{FILES}").replace(',', ";").replace('.', ","),
    ] {
        let run = run_of(&format!("Using uid:0, gid:0.\nWriting a byte at a time...done\n{line}\n$ "));
        assert_eq!(
            (mb_per_s(&run, "block_write"), mb_per_s(&run, "per_char_write")),
            (215.04, 0.513),
            "{line}"
        );
        assert_eq!(figure(&run, "seeks").iops, Some(900.5), "{line}");
        assert_eq!((figure(&run, "block_read_cpu").runs[0], mb_per_s(&run, "block_read")), (40.0, 409.6));
        assert_eq!(
            (figure(&run, "seq_create").iops, figure(&run, "random_delete").iops),
            (Some(12_000.0), Some(19_000.0))
        );
        assert!(!names(&run).contains(&"seq_stat"), "too fast to be measured");
        assert_eq!((&*run.environment["host"], &*run.environment["file_size"]), ("lab", "4G"));
        let latency = figure(&run, "block_write").latency_us;
        assert_eq!(latency.and_then(|latency| latency.max), (!line.starts_with("lab")).then_some(20.0));
    }
    assert_eq!(
        run_of(&format!("1.98,2.00a,lab,1,1,4G,,8192,5,{BLOCKS},,,,{FILES}{TIMES}")).tool,
        "bonnie++ 2.00a"
    );
}

#[test]
fn bonnie_plus_plus_lines_are_runs_or_hosts() {
    let line = |host: &str, rate: &str| {
        format!(
            "1.98,2.00a,{host},1,1700000000,4G,,8192,5,{},,,,{FILES}{TIMES}\n",
            BLOCKS.replace("210000", rate)
        )
    };
    let run = run_of(&[line("lab", "200000"), line("lab", "240000"), line("lab", "210000")].concat());
    assert_eq!((figure(&run, "block_write").runs.len(), mb_per_s(&run, "block_write")), (3, 215.04));
    let run = run_of(&[line("one", "200000"), line("two", "240000")].concat());
    assert_eq!((mb_per_s(&run, "one: block_write"), mb_per_s(&run, "two: block_write")), (204.8, 245.76));
    assert!(refused(&line("lab", "much")).contains("`much`"));
}

#[test]
fn the_table_of_bonnie_plus_plus_is_read_by_column() {
    let old = "\
Version 1.03e       ------Sequential Output------ --Sequential Input- --Random-
                    -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--
Machine        Size K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP
lab              4G 40000  91 50000  12 25000   5 41000  80 90000   7 200.5   0
";
    let run = run_of(old);
    assert_eq!((&*run.tool, run.measurements.len()), ("bonnie++ 1.03e", 12));
    assert_eq!((mb_per_s(&run, "block_read"), figure(&run, "seeks").iops), (92.16, Some(200.5)));
    let fast = "\
Version 2.00a       ------Sequential Output------ --Sequential Input- --Random-
                    -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--
Name:Size etc        /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP
lab              4G            200m  30   50m  10            100m  15 +++++ +++
Latency                       12787us    4874us              8086us   12217us
";
    let run = run_of(fast);
    assert_eq!(
        names(&run),
        ["block_write", "block_write_cpu", "rewrite", "rewrite_cpu", "block_read", "block_read_cpu"]
    );
    assert_eq!((mb_per_s(&run, "block_write"), figure(&run, "rewrite_cpu").runs[0]), (209.715, 10.0));
    assert!(is_noted(&run, "rounded"));
    let wide = fast.replace("           200m  30", "       200000000  30");
    assert!(refused(&wide).contains("not under their headings"), "{wide}");
    assert!(
        refused(&fast.replace("200m", "+++m").replace(" 50m", "++++").replace("100m", "++++"))
            .contains("no test")
    );
}

const POSTMARK: &str = "PostMark v1.53 : 8/8/12\npm>Creating files...Done\nTime:\n\t1845 seconds total\n\
\t959 seconds of transactions (5 per second)\n\nFiles:\n\t7506 created (4 per second)\n\
\t\tCreation alone: 5000 files (6 per second)\n\t\tMixed with transactions: 2506 files (2 per second)\n\
\t2541 read (2 per second)\n\t2459 appended (2 per second)\n\t7506 deleted (4 per second)\n\
\t\tDeletion alone: 5012 files (111 per second)\n\t\tMixed with transactions: 2494 files (2 per second)\n\n\
Data:\n\t13345.22 megabytes read (7.23 megabytes per second)\n\t4114.30 kilobytes written (2.50 kilobytes per second)\n";

#[test]
fn a_postmark_report_is_imported() {
    let run = run_of(POSTMARK);
    assert_eq!((&*run.tool, run.measurements.len()), ("PostMark 1.53", 12));
    assert_eq!((figure(&run, "total_time").runs[0], figure(&run, "transactions").iops), (1845.0, Some(5.0)));
    let rates = ["created_mixed", "deleted_alone"].map(|name| figure(&run, name).iops);
    assert_eq!(rates, [Some(2.0), Some(111.0)]);
    assert_eq!(figure(&run, "data_read").mb_per_s, Some(7.23 * 1.048_576));
    assert_eq!(figure(&run, "data_written").mb_per_s, Some(2.5 * 1024.0 / 1e6));
    let session = run_of(&format!("{POSTMARK}pm>run\n{}", POSTMARK.replace("1845", "1800")));
    assert_eq!(figure(&session, "total_time").runs, [1845.0, 1800.0]);
}

fn sysbench(mode: &str, reads: &str, writes: &str) -> String {
    format!(
        "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)\n\nRunning the test with following options:\n\
         Number of threads: 4\nInitializing random number generator from current time\n\n\n\
         Extra file open flags: directio\n128 files, 16MiB each\n2GiB total file size\nBlock size 16KiB\n\
         Doing {mode} test\nThreads started!\n\n[ 1s ] reads: 9.00 MiB/s writes: 6.00 MiB/s\n\n\
         File operations:\n    reads/s:                      {reads}\n    writes/s:                     {writes}\n\
         \x20   fsyncs/s:                     0.00\n\nThroughput:\n    read, MiB/s:                  8.00\n\
         \x20   written, MiB/s:               {}\n\nGeneral statistics:\n    total time:                          10.0302s\n\n\
         Latency (ms):\n         min:                                    0.00\n\
         \x20        avg:                                    2.05\n         max:                                   35.21\n\
         \x20        95th percentile:                        6.55\n         sum:                                39950.10\n\n\
         Threads fairness:\n    events (avg/stddev):           8739.5000/82.50\n",
        if writes == "0.00" { "0.00" } else { "4.00" }
    )
}

#[test]
fn sysbench_reports_are_read() {
    let run = run_of(&sysbench("random r/w", "512.00", "256.00"));
    assert_eq!((&*run.tool, run.measurements.len()), ("sysbench 1.0.20", 4));
    let read = figure(&run, "random r/w: read");
    assert_eq!((read.mb_per_s, read.iops, read.latency_us), (Some(8.388608), Some(512.0), None));
    assert_eq!((read.block_bytes, read.workers, read.op), (Some(16_384), Some(4), Operation::Read));
    let latency = figure(&run, "random r/w: latency of all events");
    assert_eq!((latency.unit, latency.runs[0]), (Unit::LatencyUs, 2050.0));
    let run = run_of(
        &[sysbench("sequential read", "512.00", "0.00"), sysbench("sequential read", "514.00", "0.00")]
            .concat(),
    );
    let read = figure(&run, "sequential read: read");
    assert_eq!((read.runs.len(), read.iops, run.measurements.len()), (2, Some(513.0), 2));
    assert_eq!(read.latency_us.expect("of reads alone").mean, Some(2050.0));
    let other =
        "sysbench 1.0.20 (using LuaJIT)\n\nNumber of threads: 1\nCPU speed:\n    events per second: 900.00\n";
    assert!(refused(other).contains("no results of `sysbench fileio"));
}

#[test]
fn sysbench_of_other_versions_is_read() {
    let new = "sysbench 1.1.0 (using LuaJIT)\n\nNumber of threads: 2\nBlock size 16KiB\nDoing random r/w test\n\
        Throughput:\n         read:  IOPS=1000.00 15.62 MiB/s (16.38 MB/s)\n\
        \x20        write: IOPS=500.00 7.81 MiB/s (8.19 MB/s)\n         fsync: IOPS=300.50\n\n\
        General statistics:\n\nLatency (ms):\n         avg:      1.10\n         max:     40.00\n";
    let run = run_of(new);
    assert_eq!(
        (mb_per_s(&run, "random r/w: read"), figure(&run, "random r/w: write").iops),
        (16.379, Some(500.0))
    );
    assert_eq!(figure(&run, "random r/w: fsync").iops, Some(300.5));
    let old = "sysbench 0.4.12:  multi-threaded system evaluation benchmark\n\nNumber of threads: 1\nBlock size 16Kb\n\
        Doing random r/w test\nOperations performed:  6000 Read, 4000 Write, 12800 Other = 22800 Total\n\
        Read 93.75Mb  Written 62.5Mb  Total transferred 156.25Mb  (15.6Mb/sec)\n 1000.00 Requests/sec executed\n\n\
        Test execution summary:\n    total time:                          10.0s\n\
        \x20   per-request statistics:\n         avg:                                  0.15ms\n";
    let run = run_of(old);
    assert_eq!((&*run.tool, mb_per_s(&run, "random r/w: read")), ("sysbench 0.4.12", 9.83));
    assert_eq!(
        (figure(&run, "random r/w: write").iops, figure(&run, "random r/w: read").block_bytes),
        (Some(400.0), Some(16_384))
    );
}

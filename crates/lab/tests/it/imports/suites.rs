//! Tools of Windows: CrystalDiskMark (and KDiskMark), diskspd, IOMeter.

use stripewise_lab::record::Operation;

use super::{figure, is_noted, mb_per_s, names, refused, run_of};

const CDM_3: &str = "\
-----------------------------------------------------------------------
CrystalDiskMark 3.0.1 x64 (C) 2007-2010 its author
-----------------------------------------------------------------------
* MB/s = 1,000,000 byte/s [SATA/300 = 300,000,000 byte/s]

           Sequential Read :   120.500 MB/s
          Sequential Write :    60.250 MB/s
         Random Read 512KB :    40.000 MB/s
        Random Write 512KB :    20.000 MB/s
    Random Read 4KB (QD=1) :     0.512 MB/s [   125.0 IOPS]
   Random Write 4KB (QD=1) :     0.256 MB/s [    62.5 IOPS]
   Random Read 4KB (QD=32) :     2.048 MB/s [   500.0 IOPS]
  Random Write 4KB (QD=32) :     1.024 MB/s [   250.0 IOPS]

  Test : 1000 MB [E: 10.0% (1.0/10.0 GB)] (x5)
  Date : 2013/05/06 7:08:09
    OS : Windows 7
";

const CDM_5: &str = "\
CrystalDiskMark 5.2.0 x64 (C) 2007-2016 its author
* MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]

   Sequential Read (Q= 32,T= 1) :   400.500 MB/s
  Sequential Write (Q= 32,T= 1) :   300.250 MB/s
  Random Read 4KiB (Q=  8,T= 8) :    10.240 MB/s [  2500.0 IOPS]
 Random Write 4KiB (Q=  8,T= 8) :     5.120 MB/s [  1250.0 IOPS]
         Sequential Read (T= 1) :   200.000 MB/s
        Sequential Write (T= 1) :   100.000 MB/s
   Random Read 4KiB (Q= 1,T= 1) :     0.512 MB/s [   125.0 IOPS]
  Random Write 4KiB (Q= 1,T= 1) :     0.256 MB/s [    62.5 IOPS]

  Test : 1024 MiB [D: 0.2% (7.1/3600.8 GiB)] (x5)  [Interval=5 sec]
  Date : 2016/07/08 12:00:00
    OS : Windows 10
";

const CDM_8: &str = "\
CrystalDiskMark 8.0.1 x64 (C) 2007-2021 its author
* MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]
* KB = 1000 bytes, KiB = 1024 bytes

[Read]
  SEQ    1MiB (Q=  8, T= 1):  1048.576 MB/s [   1000.0 IOPS] <  8000.00 us>
  SEQ  128KiB (Q= 32, T= 1):     0.000 MB/s [      0.0 IOPS] <     0.00 us>
  RND    4KiB (Q= 32, T=16):   409.600 MB/s [ 100000.0 IOPS] <  5120.00 us>

[Write]
  SEQ    1MiB (Q=  8, T= 1):  1,083.671 MB/s [   1033.5 IOPS] <  7740.00 us>

[Mix] Read 70%/Write 30%
  SEQ    1MiB (Q=  8, T= 1):   524.288 MB/s [    500.0 IOPS] < 16000.00 us>

Profile: Default
   Test: 1 GiB (x5) [E: 4% (79/1862GiB)]
   Date: 2024/01/06 5:41:48
     OS: Windows 11
";

#[test]
fn crystaldiskmark_3_has_fixed_sizes() {
    let run = run_of(CDM_3);
    assert_eq!((&*run.tool, &*run.date), ("CrystalDiskMark 3.0.1 x64", "2013-05-06T07:08:09Z"));
    assert_eq!(
        names(&run),
        [
            "SEQ1M_Q1T1_read",
            "SEQ1M_Q1T1_write",
            "RND512K_Q1T1_read",
            "RND512K_Q1T1_write",
            "RND4K_Q1T1_read",
            "RND4K_Q1T1_write",
            "RND4K_Q32T1_read",
            "RND4K_Q32T1_write"
        ]
    );
    let last = figure(&run, "RND4K_Q32T1_write");
    assert_eq!((last.mb_per_s, last.iops, last.queue_depth), (Some(1.024), Some(250.0), Some(32)));
    assert_eq!((last.block_bytes, last.latency_us, last.op), (Some(4096), None, Operation::Write));
    assert_eq!(run.environment["test"], "1000 MB [E: 10.0% (1.0/10.0 GB)] (x5)");
}

#[test]
fn crystaldiskmark_5_streams_with_and_without_queue() {
    let run = run_of(CDM_5);
    assert_eq!(run.measurements.len(), 8);
    assert_eq!(figure(&run, "SEQ128K_Q32T1_read").mb_per_s, Some(400.5));
    assert_eq!(figure(&run, "SEQ1M_Q1T1_write").block_bytes, Some(1 << 20));
    assert_eq!(figure(&run, "RND4K_Q8T8_read").workers, Some(8));
}

#[test]
fn cells_that_were_not_run_are_left_out() {
    let run = run_of(CDM_8);
    assert_eq!(names(&run), ["SEQ1M_Q8T1_read", "RND4K_Q32T16_read", "SEQ1M_Q8T1_write", "SEQ1M_Q8T1_mix"]);
    assert!(is_noted(&run, "left out: 1"));
    assert_eq!(mb_per_s(&run, "SEQ1M_Q8T1_write"), 1083.671);
    assert_eq!(figure(&run, "RND4K_Q32T16_read").latency_us.expect("a mean").mean, Some(5120.0));
    let none =
        CDM_8.lines().filter(|line| line.contains("0.000 MB/s") || line.starts_with('[')).collect::<Vec<_>>();
    assert!(refused(&none.join("\n")).contains("none of its cells was run"));
}

#[test]
fn pasted_results_need_no_title() {
    let start = CDM_8.find("* MB/s").expect("a line");
    let wide: Vec<u8> =
        [0xff, 0xfe].into_iter().chain(CDM_8.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let wide = stripewise_lab::import::import(&wide).expect("UTF-16").remove(0);
    let quoted: String = CDM_8.lines().map(|line| format!("> {line}\n")).collect();
    for run in
        [run_of(&CDM_8[start..]), run_of(&quoted), run_of(&format!("before:\n\n{}", &CDM_8[start..])), wide]
    {
        assert_eq!((run.profile.as_str(), run.measurements.len()), ("crystaldiskmark", 4));
    }
}

#[test]
fn results_after_the_first_have_numbered_names() {
    let run = run_of(&format!("{CDM_8}\n{}", CDM_8.replace("1048.576", "2097.152")));
    assert_eq!(names(&run).len(), 8);
    assert_eq!(
        (mb_per_s(&run, "SEQ1M_Q8T1_read"), mb_per_s(&run, "SEQ1M_Q8T1_read#2")),
        (1048.576, 2097.152)
    );
    assert!(is_noted(&run, "results in the file: 2"));
}

#[test]
fn decimal_commas_of_a_report_are_seen() {
    let comma = |text: &str| text.replace("1,083.671", "1083.671").replace('.', ",");
    let run = run_of(&comma(CDM_8));
    assert_eq!((mb_per_s(&run, "SEQ1M_Q8T1_read"), mb_per_s(&run, "SEQ1M_Q8T1_write")), (1048.576, 1083.671));
    let alone = "[Read]\nSEQ 1MiB (Q=  8, T= 1):  512,250 MB/s\n";
    assert_eq!(mb_per_s(&run_of(alone), "SEQ1M_Q8T1_read"), 512.25);
}

#[test]
fn kdiskmark_text_is_read() {
    let run = run_of(
        "                     KDiskMark (3.1.4): https://example.org/\n\
         * MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]\n\n\
         [Read]\nSequential   1 MiB (Q=  8, T= 1):   104.858 MB/s [    100.0 IOPS] < 80000.00 us>\n\
         [Write]\nRandom       4 KiB (Q= 32, T= 1):     4.096 MB/s [   1000.0 IOPS] <155955.57 us>\n\n\
         Profile: Default\n   Test: 1 GiB (x5) [Interval: 5 sec]\n   Date: 2024-05-01 10:00:00\n",
    );
    assert_eq!((&*run.tool, &*run.date), ("KDiskMark 3.1.4", "2024-05-01T10:00:00Z"));
    assert_eq!(names(&run), ["SEQ1M_Q8T1_read", "RND4K_Q32T1_write"]);
    assert_eq!(figure(&run, "RND4K_Q32T1_write").latency_us.expect("a mean").mean, Some(155_955.57));
}

#[test]
fn a_broken_row_is_named() {
    assert!(refused(&CDM_8.replace("1048.576", "much")).contains("line 6"));
    assert!(refused("CrystalDiskMark 7.0.0 x64 (C) 2007-2019\n").contains("no line with a figure"));
}

fn xml_thread(path: &str, reads: u64, writes: u64) -> String {
    format!(
        "<Thread><Target><Path>{path}</Path><ReadBytes>{}</ReadBytes><ReadCount>{reads}</ReadCount>\
         <WriteBytes>{}</WriteBytes><WriteCount>{writes}</WriteCount></Target></Thread>",
        reads * 65_536,
        writes * 65_536
    )
}

fn xml(targets: &[&str], threads: &str) -> String {
    let targets: String = targets
        .iter()
        .map(|path| {
            format!(
                "<Target><Path>{path}</Path><BlockSize>65536</BlockSize><RequestCount>8</RequestCount>\
                 <ThreadsPerFile>2</ThreadsPerFile></Target>"
            )
        })
        .collect();
    format!(
        "<Results><System><ComputerName>LAB</ComputerName><Tool><Version>2.1</Version></Tool>\
         <RunTime>2026/01/02 03:04:05 UTC</RunTime></System>\
         <Profile><TimeSpans><TimeSpan><Targets>{targets}</Targets></TimeSpan></TimeSpans></Profile>\
         <TimeSpan><TestTimeSeconds>10.00</TestTimeSeconds><Latency><AverageReadMilliseconds>1.500\
         </AverageReadMilliseconds><Bucket><Percentile>99</Percentile><ReadMilliseconds>9</ReadMilliseconds>\
         </Bucket></Latency>{threads}</TimeSpan></Results>"
    )
}

#[test]
fn threads_on_one_diskspd_target_are_added_up() {
    let path = "d:\\R&amp;D\\x.dat";
    let document = xml(&[path], &[xml_thread(path, 10_000, 0), xml_thread(path, 10_000, 0)].concat());
    for text in [document.clone(), format!("\u{feff}C:\\> diskspd.exe -Rxml\n{document}\nC:\\> _")] {
        let run = run_of(&text);
        assert_eq!(
            (&*run.tool, &*run.target, &*run.date),
            ("diskspd 2.1", "d:\\R&D\\x.dat", "2026-01-02T03:04:05Z")
        );
        let [only] = run.measurements.as_slice() else { panic!("{run:?}") };
        assert_eq!((only.mb_per_s, only.iops, only.workers), (Some(131.072), Some(2000.0), Some(2)));
        assert_eq!((only.block_bytes, only.queue_depth), (Some(65536), Some(8)));
        let latency = only.latency_us.expect("latencies");
        assert_eq!((latency.mean, latency.p99, latency.p50), (Some(1500.0), Some(9000.0), None));
    }
    let run = run_of(&format!("{document}\n{}", document.replace("10.00", "5.00")));
    assert_eq!(run.measurements[0].runs, [131.072, 262.144]);
    assert!(refused(&document[..document.len() / 2]).contains("diskspd XML"));
    assert!(refused("<html></html>").contains("element Results is missing"));
}

#[test]
fn diskspd_targets_do_not_share_latencies() {
    let threads: String = ["a", "a", "b", "b"].map(|path| xml_thread(path, 1000, 500)).concat();
    let run = run_of(&xml(&["a", "b"], &threads));
    assert_eq!(names(&run), ["a 1 read", "a 1 write", "b 1 read", "b 1 write"]);
    assert!(run.measurements.iter().all(|one| one.workers == Some(2) && one.latency_us.is_none()));
    assert!(is_noted(&run, "latencies are those of all targets"));
}

const DISKSPD_TEXT: &str = "\
Command Line: diskspd.exe -d10 -w50 -t2 -o8 -b8K -L t.dat

Input parameters:

\ttimespan:   1
\t-------------
\tduration: 10s
\tpath: 't.dat'
\t\tblock size: 8KiB
\t\tnumber of outstanding I/O operations per thread: 8
\t\tthreads per file: 2

Results for timespan 1:
*****

actual test time:\t10.00s

CPU |  Usage |  User  |  Kernel |  Idle
   0|   1.00%|   0.50%|    0.50%|  99.00%

Total IO
thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | LatStdDev |  file
-----------------------------------------------------------------------------------------------------
     0 |       122880000 |        15000 |      11.72 |    1500.00 |    3.500 |     1.100 | t.dat (1GiB)
-----------------------------------------------------------------------------------------------------
total:         122880000 |        15000 |      11.72 |    1500.00 |    3.500 |     1.100

Read IO
thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | LatStdDev |  file
-----------------------------------------------------------------------------------------------------
     0 |        40960000 |         5000 |       3.91 |     500.00 |    3.000 |     1.000 | t.dat (1GiB)
     1 |        40960000 |         5000 |       3.91 |     500.00 |    3.000 |     1.000 | t.dat (1GiB)
-----------------------------------------------------------------------------------------------------
total:          81920000 |        10000 |       7.81 |    1000.00 |    3.000 |     1.000

Write IO
thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | LatStdDev |  file
-----------------------------------------------------------------------------------------------------
total:          40960000 |         5000 |       3.91 |     500.00 |    4.500 |     1.200


  %-ile |  Read (ms) | Write (ms) | Total (ms)
----------------------------------------------
    min |      0.100 |      0.200 |      0.100
   50th |      2.500 |      4.000 |      3.000
   99th |      9.000 |     12.000 |     11.000
3-nines |     20.000 |     30.000 |     29.000
    max |     50.000 |     60.000 |     60.000
";

#[test]
fn diskspd_text_is_read() {
    let run = run_of(DISKSPD_TEXT);
    assert_eq!((names(&run), &*run.target), (vec!["t.dat 1 read", "t.dat 1 write"], "t.dat"));
    let (read, write) = (&run.measurements[0], &run.measurements[1]);
    assert_eq!((read.mb_per_s, read.iops, read.workers), (Some(8.192), Some(1000.0), Some(2)));
    assert_eq!((read.block_bytes, read.queue_depth), (Some(8192), Some(8)));
    let latency = read.latency_us.expect("latencies");
    assert_eq!((latency.mean, latency.p50, latency.max), (Some(3000.0), Some(2500.0), Some(50_000.0)));
    assert_eq!((write.mb_per_s, write.iops), (Some(4.096), Some(500.0)));
    assert_eq!(write.latency_us.expect("latencies").p999, Some(30_000.0));
    let again = run_of(&format!("{DISKSPD_TEXT}\n{}", DISKSPD_TEXT.replace("10.00s", "5.00s")));
    assert_eq!(figure(&again, "t.dat 1 read").runs, [8.192, 16.384]);
    let cut = &DISKSPD_TEXT[..DISKSPD_TEXT.find("Read IO").expect("a table")];
    assert!(refused(cut).contains("no table `Read IO`"));
}

fn iometer() -> String {
    let headings = "'Target Type,Target Name,Access Specification Name,# Managers,# Workers,# Disks,IOps,Read IOps,\
                    Write IOps,MBps,Read MBps,Write MBps,Average Response Time,Maximum Response Time,Errors,Queue Depth";
    format!(
        "'Test Type,Test Description\n0,\n'Version\n2008.06.18-RC2\n'Time Stamp\n2009-02-03 04:05:06:789\n\
         'Access specifications\n'Access specification name,default assignment\n4K,1\n\
         'size,% of size,% reads,% random,delay,burst,align,reply\n4096,100,100,100,0,1,0,0\n\
         'Access specification name,default assignment\n4K mixed,1\n\
         'size,% of size,% reads,% random,delay,burst,align,reply\n512,50,80,100,0,1,0,0\n4096,50,80,100,0,1,0,0\n\
         'End access specifications\n'Results\n{headings}\n\
         ALL,All,4K mixed,1,1,1,1000.5,800.25,200.25,125.5,100.5,25.0,9.01,122.5,37,16\n\
         MANAGER,HOST,,,1,1,1000.5,800.25,200.25,125.5,100.5,25.0,9.01,122.5,37,16\n\
         'Time Stamp\n2009-02-03 04:15:06:789\n'Results\n{headings}\n\
         ALL,All,4K,1,1,1,2000.25,2000.25,0,7.813477,7.813477,0,0,0,0,1\n\
         ALL,All,4K,1,1,1,3000.25,3000.25,0,11.719727,11.719727,0,0,0,0,4\n"
    )
}

#[test]
fn iometer_rows_have_binary_megabytes_and_errors() {
    let run = run_of(&iometer());
    assert_eq!((&*run.tool, &*run.date), ("IOMeter 2008.06.18-RC2", "2009-02-03T04:05:06Z"));
    assert_eq!(names(&run), ["4K mixed", "4K", "4K#2"]);
    assert!(is_noted(&run, "4K mixed: errors during the run: 37") && run.notes.len() == 1, "{:?}", run.notes);
    let (mixed, small) = (figure(&run, "4K mixed"), figure(&run, "4K"));
    assert_eq!((mixed.op, mixed.block_bytes, mixed.queue_depth), (Operation::Mixed, None, Some(16)));
    assert_eq!((mb_per_s(&run, "4K mixed"), mixed.latency_us.expect("a mean").mean), (131.596, Some(9010.0)));
    assert_eq!((small.op, small.block_bytes, small.latency_us), (Operation::Read, Some(4096), None));
    assert_eq!(figure(&run, "4K#2").queue_depth, Some(4));
}

#[test]
fn iometer_saved_by_a_spreadsheet_reads_the_same() {
    let original = run_of(&iometer());
    let stamp = |text: String| text.replace("2009-02-03 04:05:06:789", "03.02.2009 04:05:06");
    let german = stamp(iometer()).replace(',', ";").replace("2008.06.18", "2008|06|18");
    let (dates, german) =
        (german.contains("03.02.2009"), german.replace('.', ",").replace("2008|06|18", "2008.06.18"));
    assert!(dates);
    let german = german
        .replace("03,02,2009", "03.02.2009")
        .lines()
        .fold(String::new(), |all, line| all + line + ";;;\r\n");
    let quoted = iometer().replace("'Target Type", "\"'Target Type\"").replace(",All,", ",\"All\",");
    let tabs = iometer().replace(',', "\t");
    for text in [german, quoted, tabs] {
        let again = run_of(&text);
        assert_eq!((&again.measurements, &again.date), (&original.measurements, &original.date), "{text}");
    }
    assert!(refused(&iometer().replace("ALL,", "NONE,")).contains("no line `ALL`"));
    assert!(refused(&iometer().replace("1000.5,", "x,")).contains("`x` under `iops`"));
}

//! Tables in the form of `studies/`, also as spreadsheets save them; several tools in one file.

use stripewise_lab::import::import;
use stripewise_lab::record::Operation;

use super::{figure, is_noted, mb_per_s, names, refused, run_of};

#[test]
fn tables_of_the_studies_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies");
    for (file, least) in [
        ("000-table-A1-single-disk.csv", 20),
        ("002-table-7-random-light-240gb.csv", 20),
        ("004-table-9-usb-das.csv", 40),
    ] {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).expect(file);
        let count = run_of(&text).measurements.len();
        assert!(count >= least, "{file}: {count}");
    }
}

#[test]
fn equal_rows_are_runs_and_short_rows_fail() {
    let text = "Figures of today:\nconfig,op,queue_depth,value,unit\na,read,4,100,MB/s\na,read,4,102,MB/s\na,write,4,50,IOPS\n\n$ \n";
    let run = run_of(text);
    assert_eq!(
        (figure(&run, "a read 4").runs.as_slice(), figure(&run, "a read 4").queue_depth),
        (&[100.0, 102.0][..], Some(4))
    );
    assert_eq!(
        (figure(&run, "a write 4").iops, figure(&run, "a write 4").op),
        (Some(50.0), Operation::Write)
    );
    assert!(is_noted(&run, "lines without columns are left out: 1"));
    assert!(refused("a,value,unit\nx,1\n").contains("line 2 has 2 fields"));
}

#[test]
fn decimal_commas_and_semicolons_are_read() {
    let quoted = "config,op,mb_per_s\nraid5,read,\"138,7\"\nraid5,write,\"91,25\"\n";
    let semicolons = "config;op;mb_per_s\nraid5;read;138,7\nraid5;write;91,250\n";
    let tabs = "config\top\tmb_per_s\nraid5\tread\t138,7\nraid5\twrite\t91,25\n";
    for text in [quoted, semicolons, tabs] {
        let run = run_of(text);
        assert_eq!((mb_per_s(&run, "raid5 read"), mb_per_s(&run, "raid5 write")), (138.7, 91.25), "{text}");
    }
    let thousands = run_of("config,mb_per_s\na,\"1,234.5\"\nb,\"1,234\"\n");
    assert_eq!((mb_per_s(&thousands, "a"), mb_per_s(&thousands, "b")), (1234.5, 1234.0));
    assert!(refused("config,mb_per_s\na,\"1,234\"\n").contains("`1,234` is no number, or can be two"));
}

#[test]
fn an_exported_run_is_read_again() {
    let headings =
        "run,date,profile,tool,target,measurement,op,block_bytes,queue_depth,workers,sample,value,unit\n";
    let row = |name: &str, op: &str, sample: u32, value: &str| {
        format!("r1,2026-01-02T03:04:05Z,p,t,/dev/sdx,{name},{op},4096,8,2,{sample},{value}\n")
    };
    let rows = [
        row("a", "discard", 1, "5,MB/s"),
        row("a", "discard", 2, "7,MB/s"),
        row("a_cpu", "seek", 1, "9,% CPU"),
    ];
    let run = run_of(&format!("{headings}{}", rows.concat()));
    let first = figure(&run, "a");
    assert_eq!((first.runs.as_slice(), first.op), (&[5.0, 7.0][..], Operation::Discard));
    assert_eq!((first.block_bytes, first.queue_depth, first.workers), (Some(4096), Some(8), Some(2)));
    assert_eq!(names(&run), ["a", "a_cpu"]);
}

#[test]
fn rows_without_a_value_are_left_out() {
    let run = run_of("config,mb_per_s\na,100\nb,\nc,-\nd,nan\ne,n/a\nf,0\n");
    assert_eq!((names(&run), is_noted(&run, "rows without a value are left out: 4")), (vec!["a", "f"], true));
}

#[test]
fn a_file_of_several_tools_gives_a_run_of_each() {
    let text = "$ fio …\n{\"fio version\": \"fio-3\", \"jobs\": [{\"jobname\": \"a\", \"read\": {\"bw\": 100}}]}\n\
        $ bonnie++ …\nlab,4G,1,98,2,30,3,20,4,99,5,40,900.5,10,16,1,5,1,5,1,5,1,5,1,5,1,5\n";
    let profiles: Vec<String> =
        import(text.as_bytes()).expect("two").into_iter().map(|run| run.profile).collect();
    assert_eq!(profiles, ["fio", "bonnie++"]);
    let cut = text.replace("}]}", "}");
    let run = run_of(&cut);
    assert!(
        run.profile == "bonnie++" && is_noted(&run, "left out: this looks like fio JSON"),
        "{:?}",
        run.notes
    );
}

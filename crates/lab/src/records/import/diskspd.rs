//! diskspd's XML (`-Rxml`): the parameters in `Profile`, the results in `TimeSpan`.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::{ImportError, broken, number};
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "diskspd XML";
/// Maximum nesting; deeper documents are not diskspd's.
const MAX_DEPTH: usize = 64;

/// An element: its relevant texts and children.
#[derive(Default)]
struct Element {
    name: String,
    text: String,
    children: Vec<Element>,
}

impl Element {
    fn find<'a>(&'a self, name: &str) -> Option<&'a Element> {
        self.children.iter().find(|child| child.name == name)
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    fn text(&self, name: &str) -> Option<&str> {
        Some(self.find(name)?.text.trim()).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &str) -> Option<f64> {
        number(self.text(name)?)
    }
}

pub(super) fn read(text: &str) -> Result<RunRecord, ImportError> {
    let results = tree(text)?;
    let results = results.find("Results").ok_or_else(|| broken(FORMAT, "element Results is missing"))?;
    let asked = results.find("Profile").and_then(|profile| profile.find("TimeSpans"));
    let version = results.find("System").and_then(|system| system.find("Tool")?.text("Version"));
    let mut record = RunRecord {
        tool: format!("diskspd {}", version.unwrap_or("")).trim().to_owned(),
        profile: "diskspd".into(),
        ..RunRecord::default()
    };
    if let Some(system) = results.find("System") {
        record.date = system.text("RunTime").unwrap_or_default().to_owned();
        if let Some(name) = system.text("ComputerName") {
            record.environment.insert("host".into(), name.to_owned());
        }
    }
    let wishes: Vec<&Element> = asked.into_iter().flat_map(|spans| spans.all("TimeSpan")).collect();
    for (number, span) in results.all("TimeSpan").enumerate() {
        span_figures(span, wishes.get(number).copied(), number, &mut record)?;
    }
    if record.measurements.is_empty() {
        return Err(broken(FORMAT, "no TimeSpan has a target with reads or writes"));
    }
    Ok(record)
}

fn tree(text: &str) -> Result<Element, ImportError> {
    let mut reader = Reader::from_str(text);
    let mut open = vec![Element::default()];
    loop {
        let event = reader
            .read_event()
            .map_err(|error| broken(FORMAT, format!("byte {}: {error}", reader.error_position())))?;
        match event {
            Event::Start(start) => {
                let name = String::from_utf8_lossy(start.name().as_ref()).into_owned();
                open.push(Element { name, ..Element::default() });
            }
            Event::Empty(_) => {}
            Event::Text(words) => {
                let last = open.last_mut().expect("the document itself");
                last.text.push_str(&String::from_utf8_lossy(&words));
            }
            Event::End(_) => {
                let done = open.pop().expect("the reader checks that end tags match");
                match open.last_mut() {
                    Some(parent) => parent.children.push(done),
                    None => return Err(broken(FORMAT, "unexpected end tag")),
                }
            }
            Event::Eof => break,
            _ => {}
        }
        if open.len() > MAX_DEPTH {
            return Err(broken(FORMAT, "elements are nested too deeply"));
        }
    }
    match open.len() {
        1 => Ok(open.remove(0)),
        _ => Err(broken(FORMAT, "the document is truncated")),
    }
}

/// Work of all threads on one target.
#[derive(Default)]
struct Done {
    read_bytes: f64,
    reads: f64,
    write_bytes: f64,
    writes: f64,
}

fn span_figures(
    span: &Element,
    asked: Option<&Element>,
    number: usize,
    record: &mut RunRecord,
) -> Result<(), ImportError> {
    let seconds = span.number("TestTimeSeconds").filter(|seconds| *seconds > 0.0);
    let seconds = seconds.ok_or_else(|| broken(FORMAT, "a TimeSpan has no TestTimeSeconds"))?;
    let threads: Vec<&Element> = span.all("Thread").collect();
    let mut targets: BTreeMap<String, Done> = BTreeMap::new();
    for target in threads.iter().flat_map(|thread| thread.all("Target")) {
        let done = targets.entry(target.text("Path").unwrap_or_default().to_owned()).or_default();
        done.read_bytes += target.number("ReadBytes").unwrap_or(0.0);
        done.reads += target.number("ReadCount").unwrap_or(0.0);
        done.write_bytes += target.number("WriteBytes").unwrap_or(0.0);
        done.writes += target.number("WriteCount").unwrap_or(0.0);
    }
    let wish_of = |path: &str| {
        let all = asked?.find("Targets")?;
        all.children.iter().find(|target| target.text("Path") == Some(path))
    };
    for (path, done) in &targets {
        let wish = wish_of(path);
        let whole = |name: &str| wish?.number(name).map(|value| value as u64);
        for (op, side, bytes, count) in [
            (Operation::Read, "Read", done.read_bytes, done.reads),
            (Operation::Write, "Write", done.write_bytes, done.writes),
        ] {
            if count == 0.0 {
                continue;
            }
            let name = format!("{path} {} {}", number + 1, side.to_lowercase());
            let figure = MeasurementRecord {
                block_bytes: whole("BlockSize"),
                queue_depth: whole("RequestCount").map(|depth| depth as u32),
                workers: Some(threads.len() as u32),
                iops: Some(count / seconds),
                latency_us: latencies(span, side),
                unit: Unit::MbPerS,
                ..MeasurementRecord::empty(name, op)
            };
            record.measurements.push(figure.with_runs(vec![bytes / 1e6 / seconds]));
        }
        if record.target.is_empty() {
            record.target.clone_from(path);
        }
    }
    Ok(())
}

fn latencies(span: &Element, side: &str) -> Option<Latencies> {
    let found = span.find("Latency")?;
    let us = |value: f64| value * 1e3;
    let column = format!("{side}Milliseconds");
    let percentile = |wanted: f64| {
        let bucket = |bucket: &&Element| {
            bucket.number("Percentile").is_some_and(|percentile| (percentile - wanted).abs() < 1e-9)
        };
        found.all("Bucket").find(bucket).and_then(|bucket| bucket.number(&column)).map(us)
    };
    Some(Latencies {
        mean: found.number(&format!("Average{side}Milliseconds")).map(us),
        p50: percentile(50.0),
        p99: percentile(99.0),
        p999: percentile(99.9),
        max: percentile(100.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "<Results><System><ComputerName>LAB</ComputerName><Tool><Version>2.1</Version></Tool>
<RunTime>2026/01/02 03:04:05 UTC</RunTime></System>
<Profile><TimeSpans><TimeSpan><Targets><Target><Path>d:\\x.dat</Path><BlockSize>65536</BlockSize>
<RequestCount>8</RequestCount></Target></Targets></TimeSpan></TimeSpans></Profile>
<TimeSpan><TestTimeSeconds>10.00</TestTimeSeconds><ThreadCount>2</ThreadCount>
<Latency><AverageReadMilliseconds>1.500</AverageReadMilliseconds><Bucket><Percentile>50</Percentile>
<ReadMilliseconds>1.2</ReadMilliseconds></Bucket><Bucket><Percentile>99.9</Percentile><ReadMilliseconds>9</ReadMilliseconds></Bucket></Latency>
<Thread><Target><Path>d:\\x.dat</Path><ReadBytes>655360000</ReadBytes><ReadCount>10000</ReadCount><WriteBytes>0</WriteBytes><WriteCount>0</WriteCount></Target></Thread>
<Thread><Target><Path>d:\\x.dat</Path><ReadBytes>655360000</ReadBytes><ReadCount>10000</ReadCount></Target></Thread></TimeSpan></Results>";

    #[test]
    fn threads_on_one_target_are_added_up() {
        let record = read(DOCUMENT).expect("diskspd");
        assert_eq!((record.tool.as_str(), record.target.as_str()), ("diskspd 2.1", "d:\\x.dat"));
        let [only] = record.measurements.as_slice() else { panic!("{record:?}") };
        assert_eq!((only.mb_per_s, only.iops), (Some(131.072), Some(2000.0)));
        assert_eq!((only.block_bytes, only.queue_depth, only.workers), (Some(65536), Some(8), Some(2)));
        let latency = only.latency_us.expect("latencies");
        assert_eq!(
            (latency.mean, latency.p50, latency.p999, latency.p99),
            (Some(1500.0), Some(1200.0), Some(9000.0), None)
        );
    }

    #[test]
    fn cut_documents_are_refused() {
        let error = read(&DOCUMENT[..DOCUMENT.len() / 2]).expect_err("refused").to_string();
        assert!(error.contains("diskspd XML"), "{error}");
    }
}

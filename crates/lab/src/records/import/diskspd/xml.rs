//! diskspd's XML: the parameters in `Profile`, the results in `TimeSpan`.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::{Document, Span, Wish, Work};
use crate::records::dates::instant;
use crate::records::import::kit::Numbers;
use crate::records::import::{ImportError, broken};
use crate::records::record::Latencies;

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
        Numbers::default().read(self.text(name)?)
    }
}

/// Documents, and notes on those that are cut off.
pub(super) type Found = (Vec<Document>, Vec<String>);

/// The documents in a text; `None` if there are none.
pub(super) fn documents(text: &str) -> Result<Option<Found>, ImportError> {
    let (mut found, mut notes, mut rest) = (Vec::new(), Vec::new(), text);
    let mut any = false;
    while let Some(start) = start_of_results(rest) {
        any = true;
        let own = &rest[start..];
        let Some(end) = own.find("</Results>").map(|end| end + "</Results>".len()) else {
            tree(own)?;
            notes.push("the document is truncated".to_owned());
            break;
        };
        rest = &own[end..];
        match document(&tree(&own[..end])?)? {
            Some(document) => found.push(document),
            None => return Err(broken(FORMAT, "no TimeSpan has results")),
        }
    }
    Ok(any.then_some((found, notes)))
}

/// Position of the element `Results`.
fn start_of_results(text: &str) -> Option<usize> {
    let is_start = |at: &usize| text[at + "<Results".len()..].starts_with(['>', ' ', '\n', '\t']);
    text.match_indices("<Results").map(|(at, _)| at).find(is_start)
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
            Event::Text(words) => {
                let last = open.last_mut().expect("the document itself");
                last.text.push_str(&String::from_utf8_lossy(&words));
            }
            Event::GeneralRef(name) => {
                let last = open.last_mut().expect("the document itself");
                last.text.push_str(match &*name {
                    b"amp" => "&",
                    b"lt" => "<",
                    b"gt" => ">",
                    b"quot" => "\"",
                    b"apos" => "'",
                    _ => "?",
                });
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

fn document(root: &Element) -> Result<Option<Document>, ImportError> {
    let results = root.find("Results").ok_or_else(|| broken(FORMAT, "element Results is missing"))?;
    let system = results.find("System");
    let of_system = |name: &str| system.and_then(|system| system.text(name)).unwrap_or_default();
    let tool = system.and_then(|system| system.find("Tool")?.text("Version"));
    let mut document = Document {
        version: tool.unwrap_or_default().to_owned(),
        date: instant(of_system("RunTime")),
        host: of_system("ComputerName").to_owned(),
        ..Document::default()
    };
    let asked = results.find("Profile").and_then(|profile| profile.find("TimeSpans"));
    let asked: Vec<&Element> = asked.into_iter().flat_map(|spans| spans.all("TimeSpan")).collect();
    for (at, span) in results.all("TimeSpan").enumerate() {
        document.spans.push(span_of(span, asked.get(at).copied())?);
    }
    Ok((!document.spans.is_empty()).then_some(document))
}

fn span_of(span: &Element, asked: Option<&Element>) -> Result<Span, ImportError> {
    let seconds = span.number("TestTimeSeconds").filter(|seconds| *seconds > 0.0);
    let seconds = seconds.ok_or_else(|| broken(FORMAT, "a TimeSpan has no TestTimeSeconds"))?;
    let targets =
        asked.and_then(|asked| asked.find("Targets")).into_iter().flat_map(|targets| targets.all("Target"));
    let wish = |target: &Element| {
        let whole = |name: &str| target.number(name).map(|value| value as u64);
        let small = |name: &str| whole(name).and_then(|value| u32::try_from(value).ok());
        Wish {
            block_bytes: whole("BlockSize"),
            queue_depth: small("RequestCount"),
            threads: small("ThreadsPerFile"),
        }
    };
    let wishes =
        targets.map(|target| (target.text("Path").unwrap_or_default().to_owned(), wish(target))).collect();
    let work = |target: &Element| {
        let number = |name: &str| target.number(name).unwrap_or(0.0);
        let mean = |name: &str| target.number(name).map(|ms| ms * 1e3);
        Work {
            path: target.text("Path").unwrap_or_default().to_owned(),
            bytes: [number("ReadBytes"), number("WriteBytes")],
            requests: [number("ReadCount"), number("WriteCount")],
            mean_us: [mean("AverageReadLatencyMilliseconds"), mean("AverageWriteLatencyMilliseconds")],
        }
    };
    let threads = span.all("Thread");
    Ok(Span {
        seconds,
        wishes,
        work: threads.flat_map(|thread| thread.all("Target").map(work).collect::<Vec<_>>()).collect(),
        latencies: ["Read", "Write"].map(|side| latencies(span, side)),
    })
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
    let all = Latencies {
        mean: found.number(&format!("Average{side}Milliseconds")).map(us),
        p50: percentile(50.0),
        p99: percentile(99.0),
        p999: percentile(99.9),
        max: percentile(100.0),
    };
    (all != Latencies::default()).then_some(all)
}

//! Questions at a terminal: the drives first, then whatever could still change the first choice,
//! the most consequential first, until nothing could.
//!
//! Expected faults: answers that make no sense (asked again), an end of input (taken as "no
//! matter").

use std::io::{BufRead, IsTerminal, Write};

use stripewise_control::size::ByteSize;
use stripewise_model::advise::{Advice, Matter, Need, parse_link, what_matters};

use super::{advised, percent, told, workload};
use crate::commands::App;
use crate::failure::{Failure, Result};

type Parsed<T> = std::result::Result<T, String>;

/// Whether there is someone to ask.
pub(super) fn can_ask(app: &App) -> bool {
    !app.printer.is_json() && app.printer.caller().is_none() && std::io::stdin().is_terminal()
}

/// Asks for drives.
pub(super) fn drives() -> Result<Option<String>> {
    question("Which drives? (4x8TB-hdd, 8x1TB-ssd, 4xmg08ada400e, /dev/sda,/dev/sdb, …)", |text| {
        Ok(text.to_owned())
    })
}

/// Asks what matters next until nothing does; `settled` was said already.
pub(super) fn until_nothing_matters(app: &App, need: &mut Need, mut settled: Vec<Matter>) -> Result<Advice> {
    loop {
        let advice = advised(need, app)?;
        let Some((matter, changes)) = what_matters(&advice.choices, need, &settled) else {
            return Ok(advice);
        };
        let mut said = format!("So far: {}.", advice.choices[0].name());
        for change in changes.iter().take(3) {
            said += &format!("\n  {change}");
        }
        let _ = writeln!(std::io::stderr(), "{said}");
        settled.push(matter);
        match matter {
            Matter::Workload => {
                let text = "For what? (sequential, random, mixed, backup, archive, a method, or shares as in \
                            read=70,random=100,block=4KiB; empty: mixed)";
                need.workload = question(text, workload)?.unwrap_or_else(|| need.workload.clone());
            }
            Matter::Capacity => {
                let size = |text: &str| text.parse::<ByteSize>().map_err(|error| error.to_string());
                let size = question("How much usable capacity? (12TB; empty: any)", size)?;
                need.capacity_bytes = size.map(|size| size.0);
            }
            Matter::Link => {
                let link = |text: &str| parse_link(text).map_err(|error| told(&error));
                need.link = question(
                    "Behind which link? (1gbe, 2.5gbe, 10gbe, usb3, 400MB/s, …; empty: none that limits)",
                    link,
                )?;
            }
            Matter::Risk => {
                let text =
                    "Which probability of losing data within a year is accepted? (0.1%; empty: as above)";
                if let Some(risk) = question(text, percent)? {
                    (need.risk_per_year, need.risk_is_assumed) = (risk, false);
                }
            }
        }
    }
}

/// Asks until the answer makes sense; an empty one leaves it open.
fn question<T>(text: &str, parse: impl Fn(&str) -> Parsed<T>) -> Result<Option<T>> {
    let mut errors = std::io::stderr();
    loop {
        let _ = write!(errors, "{text} ").and_then(|()| errors.flush());
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.map_err(|error| Failure::because("cannot read the answer", &error))? == 0
            || line.trim().is_empty()
        {
            return Ok(None);
        }
        match parse(line.trim()) {
            Ok(value) => return Ok(Some(value)),
            Err(why) => drop(writeln!(errors, "{why}")),
        }
    }
}

//! Questions at a terminal: the drives first, then each matter that could still change the first
//! choice, the most consequential first.
//!
//! Expected faults: invalid answers (asked again), end of input (taken as an empty answer).

use std::io::{BufRead, IsTerminal, Write};

use stripewise_control::size::ByteSize;
use stripewise_model::advise::{Advice, Matter, Need, parse_link, what_matters};

use super::{advised, error_with_hint, percent, workload};
use crate::commands::App;
use crate::failure::{Failure, Result};

type Parsed<T> = std::result::Result<T, String>;

/// True if a user at a terminal can be asked.
pub(super) fn can_ask(app: &App) -> bool {
    !app.printer.is_json() && app.printer.caller().is_none() && std::io::stdin().is_terminal()
}

/// Asks for drives.
pub(super) fn drives() -> Result<Option<String>> {
    question("Which drives? (4x8TB-hdd, 8x1TB-ssd, 4xmg08ada400e, /dev/sda,/dev/sdb, …)", |text| {
        Ok(text.to_owned())
    })
}

/// Asks about the matter that could change the first choice most, until none could. `decided`
/// matters are not asked about.
pub(super) fn until_nothing_matters(app: &App, need: &mut Need, mut decided: Vec<Matter>) -> Result<Advice> {
    loop {
        let advice = advised(need, app)?;
        let Some((matter, changes)) = what_matters(&advice, need, &decided) else {
            return Ok(advice);
        };
        let mut said = format!("So far: {}.", advice.choices[0].name());
        for change in changes.iter().take(3) {
            said += &format!("\n  {change}");
        }
        let _ = writeln!(std::io::stderr(), "{said}");
        decided.push(matter);
        match matter {
            Matter::Workload => {
                let text = "Workload? (sequential, random, mixed, backup, archive, media, a method, \
                    or percentages: read=70,random=100,block=4KiB; empty: mixed)";
                need.workload = question(text, workload)?.unwrap_or_else(|| need.workload.clone());
            }
            Matter::Capacity => {
                let size = |text: &str| text.parse::<ByteSize>().map_err(|error| error.to_string());
                let size = question("Required usable capacity? (12TB; empty: any)", size)?;
                need.capacity_bytes = size.map(|size| size.0);
            }
            Matter::Link => {
                let link = |text: &str| parse_link(text).map_err(|error| error_with_hint(&error));
                need.link = question(
                    "Link to the client? (1gbe, 2.5gbe, 10gbe, usb3, 400MB/s, …; empty: no limit)",
                    link,
                )?;
            }
            Matter::Risk => {
                let text = "Accepted probability of data loss per year? (0.1%; empty: as above)";
                if let Some(risk) = question(text, percent)? {
                    need.risk_per_year = risk;
                }
            }
        }
    }
}

/// Asks until the answer is valid. `None` for an empty answer.
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

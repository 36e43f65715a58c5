//! The published tables: read from the project's `studies/`, or from files of the same columns.
//!
//! Each file is recognised by its headings. A missing or an extra column, a line with too few
//! fields, a number that is none: each is an error with file, line and column. Files without
//! measured figures (cost models, configurations, findings) are known, too, and passed over.

use std::path::{Path, PathBuf};

/// A heading set and what the rows are.
struct Kind {
    what: Table,
    headings: &'static str,
}

/// Kind of table in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// CrystalDiskMark rates by file size.
    FileSizes,
    /// bonnie and PostMark, metric by metric.
    Metrics,
    /// IOMeter, one figure a row.
    Requests,
    /// Data sheets and a first measurement of study 002.
    DataSheets,
    /// fio rates by state.
    States,
    /// Rebuild times.
    Rebuilds,
    /// No measured figures.
    Passed,
}

const KINDS: [Kind; 13] = [
    Kind {
        what: Table::FileSizes,
        headings: "study,table,system,config,raid_equivalent,disks,test,access,block_kib,queue_depth,threads,\
                   file_size_mib,row_kind,op,mb_per_s,notes",
    },
    Kind { what: Table::Metrics, headings: "study,level,tool,metric,value,unit,notes" },
    Kind {
        what: Table::Requests,
        headings: "study,table,config,level,disks,workload,op,pattern,block_kib,metric,value,unit,notes",
    },
    Kind {
        what: Table::DataSheets,
        headings: "study,table,device,level,disks,col_index,reconstructed_column,value,unit,certainty,notes",
    },
    Kind {
        what: Table::States,
        headings: "study,table,vendor,model,disk_model,disk_capacity_tb,disks,level,level_printed,usable_tb,state,\
                   workload,mb_per_s,notes",
    },
    Kind {
        what: Table::Rebuilds,
        headings: "study,vendor,model,disk_model,disk_capacity_tb,disks,level,level_printed,usable_tb,\
                   rebuild_printed,rebuild_minutes,printed_in_tables,derived_hours_per_tb,\
                   derived_mb_per_s_if_whole_disk,derived_used_tb_per_disk_at_6tb_data,\
                   derived_mb_per_s_if_used_data_only,notes",
    },
    Kind { what: Table::Passed, headings: "study,table,level,access_pattern,quantity,expression,unit,notes" },
    Kind {
        what: Table::Passed,
        headings: "study,list,config_id,level_printed,level,copies_or_parities,hdds,ssds,tiering,wbc_mib,columns,\
                   settings_are_default,notes",
    },
    Kind {
        what: Table::Passed,
        headings: "study,table,vendor,model,disk_model,disk_capacity_tb,disks,level,level_printed,usable_tb",
    },
    Kind {
        what: Table::Passed,
        headings: "study,finding_id,topic,finding,check,evidence,support,agrees_with_printed_data,source_lines",
    },
    Kind {
        what: Table::Passed,
        headings: "study,system_id,kind,host,os,raid_by,controller_or_software,controller_cache,link,drive_model,\
                   drive_facts,disks,ssd_helpers,level_printed,level,stripe_unit,cache_settings,file_system,\
                   workload_ids,appears_in,notes",
    },
    Kind {
        what: Table::Passed,
        headings: "study,workload_id,tool,version,pattern,block_size,queue_depth,workers_threads,data_size,runtime,\
                   repeats,other_parameters,used_in",
    },
    Kind { what: Table::Passed, headings: "study,item_id,source_line,quantity,value,unit,kind,notes" },
];

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../studies/", $name)))),*]
    };
}

const BUILT_IN: &[(&str, &str)] = built_in![
    "000-table-A1-single-disk.csv",
    "000-table-A2-simple.csv",
    "000-table-A3-mirror.csv",
    "000-table-A4-parity.csv",
    "000-table-A5-raid0.csv",
    "000-table-A6-raid1.csv",
    "000-table-A7-raid5.csv",
    "001-table-1-bonnie.csv",
    "001-table-2-postmark.csv",
    "002-table-1-hdd-ssd-raid0.csv",
    "002-table-3-single-ssd-latency.csv",
    "002-table-4-hdd-vs-ssd-raid.csv",
    "002-table-5-random-heavy-8ssd.csv",
    "002-table-6-sequential-heavy-8ssd.csv",
    "002-table-7-random-light-240gb.csv",
    "002-table-8-sequential-light-240gb.csv",
    "002-table-9-random-latency-240gb.csv",
    "002-table-10-sequential-latency-240gb.csv",
    "002-table-11-pcie-utilisation.csv",
    "002-table-12-software-raid0-options.csv",
    "002-table-13-two-controllers-4ssd.csv",
    "004-table-4-single-drive.csv",
    "004-table-9-usb-das.csv",
    "rebuild_times.csv",
];

/// A row of a table, with the names of its columns.
#[derive(Clone, Debug)]
pub struct Row {
    /// Kind of table.
    pub what: Table,
    /// File, as it was named.
    pub file: String,
    /// Line in it, from 1.
    pub line: usize,
    headings: std::sync::Arc<Vec<String>>,
    fields: Vec<String>,
}

/// Fault of a data file.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file's heading is unknown.
    #[error("{file}, line 1: {why}")]
    Columns {
        /// Name of the file.
        file: String,
        /// Missing and extra columns.
        why: String,
    },
    /// A field.
    #[error("{file}, line {line}, column `{column}`: {why}")]
    Field {
        /// Name of the file.
        file: String,
        /// Line number.
        line: usize,
        /// Column name.
        column: String,
        /// Fault of the value.
        why: String,
    },
}

impl DataError {
    /// Suggested remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "`--data` takes a folder of CSV files, or one such file",
            Self::Columns { .. } => "the columns are those of the files in studies/ of the project",
            Self::Field { .. } => "mend the field; quotes hold commas",
        }
    }
}

impl Row {
    /// The text under a heading that this kind of file has.
    pub fn text(&self, column: &str) -> &str {
        let at = self.headings.iter().position(|heading| heading == column);
        at.and_then(|at| self.fields.get(at)).map_or("", |field| field.trim())
    }

    /// The number under a heading.
    ///
    /// # Errors
    /// Where there is none.
    pub fn number(&self, column: &str) -> Result<f64, DataError> {
        self.text(column).parse().map_err(|_| DataError::Field {
            file: self.file.clone(),
            line: self.line,
            column: column.into(),
            why: format!("`{}` is not a number", self.text(column)),
        })
    }
}

/// The project's tables.
///
/// # Panics
/// Where a built-in table is faulty, which a test excludes.
pub fn built_in() -> Vec<Row> {
    let read = |(name, text): &(&str, &str)| parse(name, text).expect("the built-in tables are sound");
    BUILT_IN.iter().flat_map(read).collect()
}

/// The tables of a folder, or one file.
///
/// # Errors
/// What cannot be read, and what a file has wrong.
pub fn read(path: &Path) -> Result<Vec<Row>, DataError> {
    let fault = |path: &Path| {
        let path = path.to_owned();
        move |source| DataError::Read { path, source }
    };
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries: Result<Vec<_>, _> = std::fs::read_dir(path).map_err(fault(path))?.collect();
        files = entries.map_err(fault(path))?.into_iter().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
        files.sort();
    }
    let mut rows = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(fault(&file))?;
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        rows.extend(parse(&name, &text)?);
    }
    Ok(rows)
}

/// One file's rows.
///
/// # Errors
/// Unknown columns, and lines of another length.
pub fn parse(file: &str, text: &str) -> Result<Vec<Row>, DataError> {
    let mut lines = records(text).into_iter();
    let headings = lines.next().map(|(_, fields)| fields).unwrap_or_default();
    let headings: Vec<String> = headings.iter().map(|name| name.trim().to_owned()).collect();
    let what = recognise(file, &headings)?;
    let headings = std::sync::Arc::new(headings);
    let mut rows = Vec::new();
    for (line, fields) in lines {
        if fields.len() != headings.len() {
            let column = headings.get(fields.len()).or(headings.last()).cloned().unwrap_or_default();
            let why = format!("{} fields where the headings name {}", fields.len(), headings.len());
            return Err(DataError::Field { file: file.into(), line, column, why });
        }
        if what != Table::Passed {
            rows.push(Row { what, file: file.into(), line, headings: headings.clone(), fields });
        }
    }
    Ok(rows)
}

fn recognise(file: &str, headings: &[String]) -> Result<Table, DataError> {
    let shared = |kind: &&Kind| {
        let names: Vec<&str> = kind.headings.split(',').collect();
        let common = names.iter().filter(|name| headings.iter().any(|heading| heading == **name)).count();
        2 * common as i64 - names.len() as i64
    };
    let kind = KINDS.iter().max_by_key(shared).expect("there are kinds");
    let names: Vec<&str> = kind.headings.split(',').collect();
    let missing = names.iter().find(|name| !headings.iter().any(|heading| heading == *name));
    let extra = headings.iter().find(|heading| !names.contains(&heading.as_str()));
    let columns = |why| Err(DataError::Columns { file: file.into(), why });
    match (missing, extra) {
        (None, None) => Ok(kind.what),
        (Some(missing), None) => columns(format!("column `{missing}` is missing")),
        (None, Some(extra)) => columns(format!("there is an extra column `{extra}`")),
        (Some(missing), Some(extra)) => {
            columns(format!("column `{missing}` is missing, and there is an extra column `{extra}`"))
        }
    }
}

/// Lines of fields; a quoted field may hold commas and doubled quotes.
fn records(text: &str) -> Vec<(usize, Vec<String>)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(index, line)| (index + 1, fields(line))).collect()
}

pub(crate) fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    let mut rest = line.chars().peekable();
    while let Some(character) = rest.next() {
        let last = fields.last_mut().expect("there is always one");
        match character {
            '"' if quoted && rest.peek() == Some(&'"') => {
                rest.next();
                last.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => last.push(other),
        }
    }
    fields
}

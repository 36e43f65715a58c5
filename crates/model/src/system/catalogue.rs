//! The catalogue of components and systems, read from TOML.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stripewise_layout::{LayoutError, LayoutSpec, Shape};

use super::parameter::{How, Parameter};
use crate::catalogue::{DriveEntry, DriveModel, Origin, drives};
use crate::names::nearest;
use crate::ssd::SsdParameters;

const BUILT_IN: &str = include_str!("../../../../catalogue/systems.toml");

/// Kind of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentKind {
    /// A disk with an arm.
    Hdd,
    /// A solid-state drive.
    Ssd,
    /// A controller, or the software in its place.
    Controller,
    /// An enclosure whose own processor moves every byte.
    Enclosure,
    /// Connection between the host and the array.
    Link,
}

/// A part with its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// Kind of the component.
    pub kind: ComponentKind,
    /// In words.
    pub title: String,
    /// By name.
    #[serde(flatten)]
    pub parameters: BTreeMap<String, Parameter>,
}

impl Component {
    /// A number that may be absent.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.parameters.get(name).map(|parameter| parameter.value)
    }

    /// A number, or what stands for its absence.
    pub fn or(&self, name: &str, absent: f64) -> f64 {
        self.get(name).unwrap_or(absent)
    }

    /// A choice that is off unless it is made.
    pub fn is(&self, name: &str) -> bool {
        self.or(name, 0.0) != 0.0
    }
}

/// Layer below software RAID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// The controller does the RAID itself; or software over plain ports.
    #[default]
    Drives,
    /// Devices that the controller passes through, past its cache.
    Jbod,
    /// One-drive volumes behind the controller's cache.
    SimpleVolumes,
    /// RAID 0 sets of each controller.
    HardwareRaid0,
}

/// A configuration, before its names are looked up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// `4x NAME`.
    pub drives: String,
    /// As `volume create --layout` takes it.
    pub layout: String,
    /// Members of a stripe; all drives where it is left out.
    #[serde(default)]
    pub columns: Option<usize>,
    /// Strip size; that of the layout's default where it is left out.
    #[serde(default)]
    pub interleave_kib: Option<u64>,
    /// Groups of RAID 50 and 60.
    #[serde(default)]
    pub groups: Option<usize>,
    /// Name of the controller or software.
    pub controller: String,
    /// Number of controllers that share the drives.
    #[serde(default = "one")]
    pub controllers: usize,
    /// Software RAID over what.
    #[serde(default)]
    pub over: Over,
    /// True if the host uses the array through a file system.
    #[serde(default)]
    pub file_system: bool,
    /// Connection between the host and the array; omitted if it never limits.
    #[serde(default)]
    pub link: Option<String>,
    /// `2x NAME` of solid-state drives that hold the journal or the fast tier.
    #[serde(default)]
    pub journal: Option<String>,
    /// Share of the capacity that holds data, for rebuilds of used data only.
    #[serde(default)]
    pub filled: Option<f64>,
}

/// Rules of a link that take the place of the controller's.
const LINK_RULES: [&str; 3] = ["in_flight", "serial_members", "absorbs"];

fn one() -> usize {
    1
}

/// A system of the catalogue as it stands in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemEntry {
    /// In words.
    pub title: String,
    /// Components and layout of the system.
    #[serde(flatten)]
    pub configuration: Configuration,
}

/// A configuration with everything looked up and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct System {
    /// Its name in the catalogue, or what it is made of.
    pub name: String,
    /// Number of drives.
    pub drives: usize,
    /// Name of the drive.
    pub drive_name: String,
    /// The drive.
    pub drive: Component,
    /// The layout over them.
    pub shape: Shape,
    /// Name of the controller.
    pub controller_name: String,
    /// The controller or software.
    pub controller: Component,
    /// Number of controllers.
    pub controllers: usize,
    /// Software RAID over what.
    pub over: Over,
    /// Through a file system.
    pub file_system: bool,
    /// Component that limits the path to the host.
    pub link: Option<Component>,
    /// Journal or tier drives.
    pub journal: Option<(usize, Component)>,
    /// Share of the capacity that holds data.
    pub filled: f64,
}

impl System {
    /// True if the host's processor does the RAID.
    pub(crate) fn is_software(&self) -> bool {
        self.controller.is("software") || self.over != Over::Drives
    }
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// Drives, controllers, links by name.
    #[serde(default)]
    pub component: BTreeMap<String, Component>,
    /// Systems by name.
    #[serde(default)]
    pub system: BTreeMap<String, SystemEntry>,
}

fn near(names: &[String]) -> String {
    match names.is_empty() {
        true => String::new(),
        false => format!("; the nearest: {}", names.join(", ")),
    }
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// A hard disk of the drives' catalogue, by the names that systems use.
pub(crate) fn hard_disk(drive: &DriveEntry) -> Component {
    let parameter = |(theirs, name, unit, factor): &(&str, &str, &str, f64)| {
        let found = drive.parameters.get(*theirs)?;
        let value = found.value.as_float().or(found.value.as_integer().map(|value| value as f64))? * factor;
        let how = match found.from {
            Origin::DataSheet => How::DataSheet,
            Origin::Measured => How::Measured,
            Origin::Fitted => How::Fitted,
            Origin::Assumed => How::Assumed,
        };
        let source = if found.rows.is_empty() { found.source.clone() } else { found.rows.join("; ") };
        let source = source.replace(',', "");
        Some(((*name).to_owned(), Parameter { value, unit: (*unit).to_owned(), how, source }))
    };
    let parameters = HARD_DISK.iter().filter_map(parameter).collect();
    Component { kind: ComponentKind::Hdd, title: drive.title.clone(), parameters }
}

/// The drives' name, ours, our unit, and the factor between the two.
const HARD_DISK: [(&str, &str, &str, f64); 17] = [
    ("capacity_bytes", "capacity", "B", 1.0),
    ("revolutions_per_minute", "spindle", "rpm", 1.0),
    ("heads", "heads", "heads", 1.0),
    ("outer_mb_per_s", "outer_rate", "MB/s", 1.0),
    ("inner_mb_per_s", "inner_rate", "MB/s", 1.0),
    ("settle_ms", "settle", "ms", 1.0),
    ("average_seek_ms", "average_seek", "ms", 1.0),
    ("head_switch_ms", "head_switch", "ms", 1.0),
    ("write_settle_ms", "write_settle", "ms", 1.0),
    ("command_overhead_ms", "command", "us", 1000.0),
    ("read_segments", "read_segments", "segments", 1.0),
    ("read_segment_kib", "read_segment", "KiB", 1.0),
    ("read_ahead_kib", "read_ahead", "KiB", 1.0),
    ("interface_mb_per_s", "interface", "MB/s", 1.0),
    ("queue_depth", "queue_depth", "commands", 1.0),
    ("write_cache_mib", "write_cache_size", "MiB", 1.0),
    ("write_cache_extents", "write_cache", "requests", 1.0),
];

/// A solid-state drive of the drives' catalogue: what its channels and dies come to.
pub(crate) fn solid_state(drive: &DriveEntry, ssd: &SsdParameters) -> Component {
    let (dies, page) = (f64::from(ssd.channels * ssd.dies_per_channel), f64::from(ssd.page_bytes));
    let wires = ssd.interface_mb_per_s.min(f64::from(ssd.channels) * ssd.channel_mb_per_s);
    let reading = wires.min(dies * page / ssd.read_us.max(0.1));
    let erased = ssd.program_us + ssd.erase_us / f64::from(ssd.pages_per_block);
    let writing = wires.min(dies * page / erased.max(0.1));
    // Greedy collection copies about this many pages for each page written at random.
    let spare = ssd.over_provisioning_percent / 100.0;
    let amplified = ((1.0 + spare) / (2.0 * spare)).max(1.0);
    let values = [
        ("capacity", "B", ssd.capacity_bytes as f64),
        ("interface", "MB/s", ssd.interface_mb_per_s),
        ("command", "us", ssd.command_us),
        ("turnaround", "us", ssd.latency_us),
        ("sequential_read", "MB/s", reading),
        ("random_read", "MB/s", reading),
        ("sequential_write", "MB/s", writing),
        ("page_read", "us", ssd.read_us + page / ssd.channel_mb_per_s),
        ("pages_read", "us", ssd.read_us + page / ssd.channel_mb_per_s),
        ("program", "us", ssd.program_us),
        ("random_write", "us", 4096.0 * amplified / writing),
        ("random_write_aged", "us", 4096.0 * amplified / writing),
        ("random_write_exponent", "1", 1.0),
    ];
    let source = "channels, dies and spare pages of its entry among the drives";
    let parameter = |(name, unit, value): (&str, &str, f64)| {
        (name.to_owned(), Parameter { value, unit: unit.into(), how: How::Assumed, source: source.into() })
    };
    let parameters = values.into_iter().map(parameter).collect();
    Component { kind: ComponentKind::Ssd, title: drive.title.clone(), parameters }
}

/// Fault of a name, a file or a configuration.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The text is not a valid catalogue.
    #[error("{file}: {why}")]
    File {
        /// Path of the file.
        file: String,
        /// Line and reason.
        why: String,
    },
    /// An unknown name.
    #[error("there is no {what} `{name}`{}", near(.nearest))]
    Unknown {
        /// System, drive, controller or link.
        what: &'static str,
        /// As asked for.
        name: String,
        /// Up to three.
        nearest: Vec<String>,
    },
    /// Not `4xNAME`.
    #[error("`{given}` does not say how many of which drive")]
    Drives {
        /// As asked for.
        given: String,
    },
    /// The layout's own rules.
    #[error("{drives} drives cannot be `{layout}`: {source}")]
    Layout {
        /// As asked for.
        layout: String,
        /// Number of drives.
        drives: usize,
        /// The rule.
        source: LayoutError,
    },
    /// A rule of the parts.
    #[error("{why}")]
    Impossible {
        /// The violated rule.
        why: String,
    },
}

impl CatalogueError {
    /// Suggested remedy.
    pub fn hint(&self) -> String {
        match self {
            Self::File { .. } => "mend the file; docs/model.md lists names and units".into(),
            Self::Unknown { .. } => "`stripewise model catalogue` lists all names".into(),
            Self::Drives { .. } => "write the number, an x and a name: `4xmg08ada400e`".into(),
            Self::Layout { source, .. } => source.hint(),
            Self::Impossible { .. } => "`stripewise model catalogue NAME` shows what a part can do".into(),
        }
    }
}

impl Catalogue {
    /// The one in the program.
    ///
    /// # Panics
    /// Where the file in the program is faulty, which a test excludes.
    pub fn built_in() -> Self {
        Self::parse("catalogue/systems.toml", BUILT_IN).expect("the built-in catalogue is sound")
    }

    /// Reads one.
    ///
    /// # Errors
    /// Text that is none, unknown names, wrong units, values out of range, systems that cannot be.
    pub fn parse(file: &str, text: &str) -> Result<Self, CatalogueError> {
        let error = |why: String| CatalogueError::File { file: file.into(), why };
        let mut catalogue: Self = toml::from_str(text).map_err(|fault| error(fault.to_string()))?;
        for drive in drives() {
            // Values that this file gives for a drive override the drive's own entry.
            let own = match &drive.model {
                DriveModel::Hdd(_) => hard_disk(drive),
                DriveModel::Ssd(ssd) => solid_state(drive, ssd),
                // Response tables have no parts that a system is made of; none is built in.
                DriveModel::Measured(_) => continue,
            };
            let component = catalogue.component.entry(drive.name.clone()).or_insert_with(|| own.clone());
            for (name, parameter) in own.parameters {
                component.parameters.entry(name).or_insert(parameter);
            }
        }
        for (name, component) in &catalogue.component {
            for (parameter, value) in &component.parameters {
                if let Some(fault) = value.fault(parameter) {
                    return Err(error(format!("[component.{name}]: {fault}")));
                }
            }
        }
        for name in catalogue.system.keys() {
            catalogue.system(name).map_err(|fault| error(format!("[system.{name}]: {fault}")))?;
        }
        Ok(catalogue)
    }

    /// The system of this name.
    ///
    /// # Errors
    /// No such name, with the nearest.
    pub fn system(&self, name: &str) -> Result<System, CatalogueError> {
        let Some(entry) = self.system.get(name) else {
            let nearest = owned(nearest(name, self.system.keys().map(String::as_str)));
            return Err(CatalogueError::Unknown { what: "system", name: name.into(), nearest });
        };
        self.build(name, &entry.configuration)
    }

    /// A configuration made of the catalogue's parts.
    ///
    /// # Errors
    /// Unknown names, impossible layouts, parts that do not fit each other.
    pub fn build(&self, name: &str, wanted: &Configuration) -> Result<System, CatalogueError> {
        let (drives, drive_name, drive) = self.drives(&wanted.drives)?;
        let controller = self.part("controller", &wanted.controller, |kind| {
            matches!(kind, ComponentKind::Controller | ComponentKind::Enclosure)
        })?;
        let mut controller = controller;
        let link = match &wanted.link {
            Some(link) => Some(self.part("link", link, |kind| kind == ComponentKind::Link)?),
            None => None,
        };
        // An enclosure behind such a link takes commands as the link allows, whatever drives it.
        for name in LINK_RULES {
            if let Some(rule) = link.as_ref().and_then(|link: &Component| link.parameters.get(name)) {
                controller.parameters.insert(name.to_owned(), rule.clone());
            }
        }
        let journal = match &wanted.journal {
            Some(text) => self.drives(text).map(|(count, _, drive)| Some((count, drive)))?,
            None => None,
        };
        let layout_error = |source| CatalogueError::Layout { layout: wanted.layout.clone(), drives, source };
        let mut spec = LayoutSpec::parse(&wanted.layout).map_err(layout_error)?;
        spec.columns = wanted.columns.or(spec.columns);
        spec.groups = wanted.groups;
        spec.interleave_bytes = wanted.interleave_kib.map(|kib| kib << 10);
        let shape = spec.resolve(drives).map_err(layout_error)?;
        let impossible = |why: String| Err(CatalogueError::Impossible { why });
        if wanted.controllers == 0 || wanted.controllers > drives {
            return impossible(format!("{} controllers cannot share {drives} drives", wanted.controllers));
        }
        if wanted.controllers > 1 && wanted.over == Over::Drives {
            return impossible("only software RAID spans several controllers: say over what it lies".into());
        }
        if journal.as_ref().is_some_and(|(_, drive)| drive.kind != ComponentKind::Ssd) {
            return impossible("a journal lies on solid-state drives".into());
        }
        if controller.kind == ComponentKind::Enclosure && drive.kind != ComponentKind::Hdd {
            return impossible(format!("`{}` takes hard disks only", wanted.controller));
        }
        Ok(System {
            name: name.into(),
            drives,
            drive_name,
            drive,
            shape,
            controller_name: wanted.controller.clone(),
            controller,
            controllers: wanted.controllers,
            over: wanted.over,
            file_system: wanted.file_system,
            link,
            journal,
            filled: wanted.filled.unwrap_or(1.0),
        })
    }

    /// Reads `4xNAME`.
    ///
    /// # Errors
    /// Other text, or no such drive.
    pub fn drives(&self, text: &str) -> Result<(usize, String, Component), CatalogueError> {
        let parts = text.split_once('x').map(|(count, name)| (count.trim().parse(), name.trim()));
        let Some((Ok(count), name)) = parts else {
            return Err(CatalogueError::Drives { given: text.into() });
        };
        let drive = |kind| matches!(kind, ComponentKind::Hdd | ComponentKind::Ssd);
        Ok((count, name.to_owned(), self.part("drive", name, drive)?))
    }

    fn part(
        &self,
        what: &'static str,
        name: &str,
        fits: impl Fn(ComponentKind) -> bool,
    ) -> Result<Component, CatalogueError> {
        match self.component.get(name) {
            Some(component) if fits(component.kind) => Ok(component.clone()),
            _ => {
                let fitting = self.component.iter().filter(|(_, component)| fits(component.kind));
                let nearest = owned(nearest(name, fitting.map(|(name, _)| name.as_str())));
                Err(CatalogueError::Unknown { what, name: name.into(), nearest })
            }
        }
    }
}

//! Commands that build a choice: with this program, Linux md and a file system, ZFS, Storage
//! Spaces. A layout that a system cannot build has no commands for it, and its caveat says so.
//!
//! Drives are placeholders (`/dev/DRIVE1`): only the user knows their paths.

use serde::Serialize;
use stripewise_layout::Level;

use super::Choice;
use super::wanted::Need;

/// Command lines by system.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Commands {
    /// This program.
    pub stripewise: Vec<String>,
    /// Linux md, with a file system.
    pub mdadm: Vec<String>,
    /// ZFS.
    pub zpool: Vec<String>,
    /// PowerShell.
    pub storage_spaces: Vec<String>,
}

/// Caveats of the commands, by system.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Caveats {
    /// This program.
    pub stripewise: Vec<String>,
    /// Linux md.
    pub mdadm: Vec<String>,
    /// ZFS.
    pub zpool: Vec<String>,
    /// Storage Spaces.
    pub storage_spaces: Vec<String>,
}

/// Properties of a choice that the systems need.
struct Plan<'a> {
    choice: &'a Choice,
    level: Level,
    parity: usize,
    group: usize,
    data_drives: usize,
    random: bool,
}

/// For all systems.
pub(super) fn of(choice: &Choice, need: &Need) -> (Commands, Caveats) {
    let level: Level = choice.layout.parse().expect("a choice has a layout");
    let parity = level.parity_units();
    let group = choice.columns / choice.groups.max(1);
    let data_drives = match level {
        Level::Raid1 | Level::Single => 1,
        Level::Raid10 => choice.columns / 2,
        _ => (group - parity) * choice.groups.max(1),
    };
    let random = need.workload.loads.iter().all(|load| load.random_share >= 0.5);
    let plan = Plan { choice, level, parity, group, data_drives, random };
    let (stripewise, ours) = plan.stripewise();
    let elsewhere = |built: Built, system: &str| match choice.columns < choice.drives {
        true => (Vec::new(), vec![format!("{system} has no rows of fewer columns on varying drives")]),
        false => built,
    };
    let (mdadm, md) = elsewhere(plan.mdadm(), "Linux md");
    let (zpool, zfs) = elsewhere(plan.zpool(), "ZFS");
    let (storage_spaces, spaces) = elsewhere(plan.storage_spaces(), "this plan for Storage Spaces");
    (
        Commands { stripewise, mdadm, zpool, storage_spaces },
        Caveats { stripewise: ours, mdadm: md, zpool: zfs, storage_spaces: spaces },
    )
}

type Built = (Vec<String>, Vec<String>);

fn text(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

fn drives(numbers: impl Iterator<Item = usize>) -> String {
    numbers.map(|number| format!("/dev/DRIVE{number}")).collect::<Vec<_>>().join(" ")
}

impl Plan<'_> {
    fn all_drives(&self) -> String {
        drives(1..=self.choice.drives)
    }

    fn spares(&self) -> impl Iterator<Item = usize> + use<> {
        self.choice.drives + 1..=self.choice.drives + self.choice.spares
    }

    fn kib(&self) -> u64 {
        self.choice.interleave_bytes >> 10
    }

    fn stripewise(&self) -> Built {
        let choice = self.choice;
        let spares: String = self.spares().map(|number| format!(" --spare /dev/DRIVE{number}")).collect();
        let journal: String =
            (1..=choice.journal_drives).map(|number| format!(" --journal /dev/SSD{number}")).collect();
        let groups = if choice.groups > 1 { format!(" --groups {}", choice.groups) } else { String::new() };
        let interleave = match self.level {
            Level::Single | Level::Raid1 => String::new(),
            _ => format!(" --interleave {}KiB", self.kib()),
        };
        let columns = if choice.layout == "raid1" || choice.columns < choice.drives {
            format!(" --columns {}", choice.columns)
        } else {
            String::new()
        };
        let commands = vec![
            format!("stripewise pool create tank {}{spares}{journal}", self.all_drives()),
            format!(
                "stripewise volume create tank/data --layout {}{columns}{groups}{interleave}",
                choice.layout
            ),
            "stripewise mount tank/data /mnt/data --fs xfs".to_owned(),
        ];
        (commands, text(&["in user space: each request costs processor time that Linux md does not take"]))
    }

    fn mdadm(&self) -> Built {
        let choice = self.choice;
        let chunk = format!("--chunk={}K", self.kib());
        let mut commands = Vec::new();
        let mut caveats = Vec::new();
        let bitmap = self.md_consistency(&mut commands, &mut caveats);
        let spares = match choice.spares {
            0 => String::new(),
            spares => format!(" --spare-devices={spares}"),
        };
        let mut with_spares = vec![self.all_drives()];
        with_spares.extend((choice.spares > 0).then(|| drives(self.spares())));
        let members = with_spares.join(" ");
        let count = choice.drives;
        match self.level {
            Level::Raid7 => return (Vec::new(), text(&["Linux md has no triple parity"])),
            Level::Single => commands.push("# one drive: the file system goes on it".to_owned()),
            Level::Raid0 => commands.push(format!(
                "mdadm --create /dev/md0 --level=0 --raid-devices={count} {chunk} {}",
                self.all_drives()
            )),
            Level::Raid1 => commands.push(format!(
                "mdadm --create /dev/md0 --level=1 --raid-devices={count}{spares} {bitmap} {members}"
            )),
            Level::Raid10 => commands.push(format!(
                "mdadm --create /dev/md0 --level=10 --layout=n2 --raid-devices={count}{spares} {chunk} {bitmap} {members}"
            )),
            Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                let level = if self.parity == 2 { 6 } else { 5 };
                commands.push(format!(
                    "mdadm --create /dev/md0 --level={level} --layout=left-symmetric --raid-devices={count}{spares} \
                     {chunk} {bitmap} {members}"
                ));
                commands.push("echo 8192 > /sys/block/md0/md/stripe_cache_size".to_owned());
            }
            Level::Raid50 | Level::Raid60 => {
                let level = if self.parity == 2 { 6 } else { 5 };
                for group in 0..choice.groups {
                    let first = group * self.group + 1;
                    // One group has the spares: the monitor lends them to the others.
                    let (spares, of_group) = match group {
                        0 => (spares.as_str(), drives((first..first + self.group).chain(self.spares()))),
                        _ => ("", drives(first..first + self.group)),
                    };
                    commands.push(format!(
                        "mdadm --create /dev/md{} --level={level} --layout=left-symmetric --raid-devices={}{spares} \
                         {chunk} {bitmap} {of_group}",
                        group + 1,
                        self.group,
                    ));
                    commands.push(format!("echo 8192 > /sys/block/md{}/md/stripe_cache_size", group + 1));
                }
                let arrays: Vec<String> = (1..=choice.groups).map(|group| format!("/dev/md{group}")).collect();
                commands.push(format!(
                    "mdadm --create /dev/md0 --level=0 --raid-devices={} --chunk={}K {}",
                    choice.groups,
                    self.kib() * (self.group - self.parity) as u64,
                    arrays.join(" ")
                ));
                if choice.spares > 0 {
                    caveats.push(
                        "the spares are those of md1; where mdadm.conf gives all groups the same spare-group, mdadm \
                         --monitor lends them to the others"
                            .to_owned(),
                    );
                }
            }
        }
        let device = if self.level == Level::Single { "/dev/DRIVE1" } else { "/dev/md0" };
        let (xfs, ext4) = self.file_systems();
        commands.push(format!("mkfs.xfs{xfs} {device}"));
        commands.push(format!("mkfs.ext4{ext4} {device}"));
        caveats.push("one of the two file systems, not both".to_owned());
        if self.parity > 0 {
            if !bitmap.starts_with("--write-journal") {
                caveats.push(
                    "without --consistency-policy=ppl (RAID 5) or a journal device a crash while degraded can damage \
                     old data"
                        .to_owned(),
                );
            }
            caveats.push(
                "stripe_cache_size takes 4 KiB a member and entry of memory, and is set again at each start"
                    .to_owned(),
            );
        }
        (commands, caveats)
    }

    /// Returns the consistency policy of an array with redundancy after a crash: a journal where
    /// there are drives for it, else a bitmap. Commands that prepare the journal are added.
    fn md_consistency(&self, commands: &mut Vec<String>, caveats: &mut Vec<String>) -> &'static str {
        let journal = self.choice.journal_drives;
        if journal == 0 || self.parity == 0 {
            return "--bitmap=internal";
        }
        if self.choice.groups > 1 {
            caveats.push(
                "each group would need a journal device of its own (--write-journal), such as a partition"
                    .to_owned(),
            );
            return "--bitmap=internal";
        }
        caveats.push(
            "the journal is written through; /sys/block/md0/md/journal_mode takes write-back".to_owned(),
        );
        if journal == 1 {
            caveats.push("the array is read-only once its only journal device is lost".to_owned());
            return "--write-journal=/dev/SSD1";
        }
        commands.push("mdadm --create /dev/md127 --level=1 --raid-devices=2 /dev/SSD1 /dev/SSD2".to_owned());
        "--write-journal=/dev/md127"
    }

    /// Stripe options of XFS and ext4.
    fn file_systems(&self) -> (String, String) {
        match self.level {
            Level::Single | Level::Raid1 => (String::new(), String::new()),
            _ => {
                let stride = self.choice.interleave_bytes / 4096;
                (
                    format!(" -d su={}k,sw={}", self.kib(), self.data_drives),
                    format!(" -E stride={stride},stripe_width={}", stride * self.data_drives as u64),
                )
            }
        }
    }

    fn zpool(&self) -> Built {
        let choice = self.choice;
        let record = if self.random { "16K" } else { "1M" };
        let group = |kind: &str, width: usize| {
            let firsts = (1..=choice.drives).step_by(width);
            firsts.map(|first| format!(" {kind}{}", drives(first..first + width))).collect::<String>()
        };
        let vdevs = match self.level {
            Level::Single => group("", 1),
            Level::Raid0 => format!(" {}", self.all_drives()),
            Level::Raid1 => group("mirror ", choice.drives),
            Level::Raid10 if choice.drives.is_multiple_of(2) => group("mirror ", 2),
            Level::Raid10 => return (Vec::new(), text(&["ZFS has no mirrors over an odd number of drives"])),
            _ => group(&format!("raidz{} ", self.parity), self.group),
        };
        let spares = match choice.spares {
            0 => String::new(),
            _ => format!(" spare {}", drives(self.spares())),
        };
        let log = match choice.journal_drives {
            0 => String::new(),
            1 => " log /dev/SSD1".to_owned(),
            _ => " log mirror /dev/SSD1 /dev/SSD2".to_owned(),
        };
        let create = |vdevs: &str, rest: &str| {
            format!(
                "zpool create -o ashift=12 -O recordsize={record} -O compression=lz4 tank{vdevs}{rest}{log}"
            )
        };
        let mut commands = vec![create(&vdevs, &spares)];
        let mut caveats = text(&["ashift cannot be changed later; 12 suits drives of 4 KiB sectors"]);
        if self.parity > 0 {
            caveats.push(
                "a random read turns all data drives of its raidz; mirrors suit random work".to_owned(),
            );
            let distributed = choice.spares.max(1);
            let children = choice.drives + choice.spares;
            let is_worth_it = choice.spares > 0 || children > 2 * self.group;
            if is_worth_it && self.group + distributed <= children {
                let draid = format!(
                    " draid{}:{}d:{children}c:{distributed}s {}",
                    self.parity,
                    self.group - self.parity,
                    { drives(1..=children) }
                );
                commands.push(format!("# or, with spare space on all drives: {}", create(&draid, "")));
                caveats.push(
                    "dRAID writes whole stripes only: small files take more room than in raidz".to_owned(),
                );
            }
        }
        if choice.journal_drives > 0 {
            caveats.push("a log device speeds up synchronous writes only".to_owned());
        }
        (commands, caveats)
    }

    fn storage_spaces(&self) -> Built {
        let choice = self.choice;
        let copies = |copies: usize| {
            let columns = choice.drives / copies;
            (
                format!(
                    "-ResiliencySettingName Mirror -NumberOfDataCopies {copies} -NumberOfColumns {columns}"
                ),
                columns,
            )
        };
        let (resiliency, data_columns) = match self.level {
            Level::Single | Level::Raid0 => {
                (format!("-ResiliencySettingName Simple -NumberOfColumns {}", choice.drives), choice.drives)
            }
            Level::Raid1 if choice.drives == 3 => {
                return (Vec::new(), text(&["a three-way mirror of Storage Spaces needs five drives"]));
            }
            Level::Raid1 | Level::Raid10 => copies(2),
            Level::Raid4 | Level::Raid5 => {
                let data = power_of_two_at_most(choice.drives - 1);
                if data < 2 {
                    return (Vec::new(), text(&["single parity of Storage Spaces needs three drives"]));
                }
                (
                    format!(
                        "-ResiliencySettingName Parity -PhysicalDiskRedundancy 1 -NumberOfColumns {}",
                        data + 1
                    ),
                    data,
                )
            }
            Level::Raid6 if choice.drives >= 7 => {
                // Dual parity is a local reconstruction code: columns less three hold data where
                // there are seven.
                ("-ResiliencySettingName Parity -PhysicalDiskRedundancy 2 -NumberOfColumns 7".to_owned(), 4)
            }
            Level::Raid6 => return (Vec::new(), text(&["dual parity of Storage Spaces needs seven drives"])),
            Level::Raid7 => return (Vec::new(), text(&["Storage Spaces has no triple parity"])),
            Level::Raid50 | Level::Raid60 => {
                return (Vec::new(), text(&["Storage Spaces has no groups: use several virtual disks"]));
            }
        };
        // A cluster that is a whole stripe of data: 16 KiB is the least interleave, 64 KiB a usual
        // cluster.
        let parity = self.parity > 0;
        let interleave_kib = if parity { (64 / data_columns as u64).max(16) } else { 64 };
        let cluster_kib = if parity { interleave_kib * data_columns as u64 } else { 64 };
        let mut commands = text(&[
            "$disks = Get-PhysicalDisk -CanPool $true",
            "New-StoragePool -FriendlyName tank -StorageSubSystemFriendlyName 'Windows Storage*' -PhysicalDisks $disks",
        ]);
        if choice.journal_drives > 0 {
            commands
                .push("$disks | Where-Object MediaType -eq SSD | Set-PhysicalDisk -Usage Journal".to_owned());
        }
        if choice.spares > 0 {
            let others = if choice.journal_drives > 0 { "| Where-Object MediaType -ne SSD " } else { "" };
            commands.push(format!(
                "$disks {others}| Select-Object -Last {} | Set-PhysicalDisk -Usage HotSpare",
                choice.spares
            ));
        }
        commands.push(format!(
            "New-VirtualDisk -StoragePoolFriendlyName tank -FriendlyName data {resiliency} -Interleave {}  \
             -ProvisioningType Fixed -UseMaximumSize",
            interleave_kib << 10
        ));
        commands.push(format!(
            "Get-VirtualDisk -FriendlyName data | Get-Disk | Initialize-Disk -PassThru | New-Partition \
             -UseMaximumSize -AssignDriveLetter | Format-Volume -FileSystem NTFS -AllocationUnitSize {}",
            cluster_kib << 10
        ));
        for command in &mut commands {
            *command = command.replace("  ", " ");
        }
        let mut caveats = Vec::new();
        if parity {
            caveats.push(format!(
                "the cluster of {cluster_kib} KiB is a whole stripe ({data_columns} data columns of {interleave_kib} \
                 KiB): with clusters that are none, writes lose about 80 % of their speed"
            ));
            if choice.journal_drives == 0 {
                caveats.push(
                    "parity without journal drives writes slowly; wide columns make it worse".to_owned(),
                );
            }
            if choice.drives != data_columns + self.parity {
                caveats.push(format!(
                    "fewer columns than drives, so that the cluster fits: usable are {data_columns} of {} columns",
                    if self.parity == 2 { 7 } else { data_columns + 1 }
                ));
            }
        }
        caveats.push(
            "Get-PhysicalDisk -CanPool $true finds every empty disk: look at $disks before going on"
                .to_owned(),
        );
        caveats.push("a pool grows by columns times copies drives at a time".to_owned());
        (commands, caveats)
    }
}

fn power_of_two_at_most(number: usize) -> usize {
    // NTFS clusters of more than 64 KiB are not supported by all of Windows: at most four columns
    // of 16 KiB.
    match number {
        4.. => 4,
        2 | 3 => 2,
        _ => 1,
    }
}

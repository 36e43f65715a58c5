//! Requests about pools, drives and volumes, as data. The command line makes them from arguments,
//! HTTP from a request; the daemon's socket carries them as they are. The result is a
//! [`crate::messages::response::Response`] or a [`crate::Failure`].
//!
//! Names are checked when they are made; everything else is checked when a request is executed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{JobKind, Pin, Role as DriveRole};

use crate::messages::roles::Role;
use crate::notation::file_system::FileSystem;
use crate::notation::names::{OwnName, PoolName, ReadableName, SnapshotName, VolumeName};
use crate::notation::size::WantedSize;

mod settings;
mod shown;
mod volume_settings;

pub(crate) use settings::MONTHLY_S;
pub use settings::Setting;
pub use volume_settings::VolumeSetting;

/// A mount by the system's `mount`. If it is there already, the request succeeds; `umount` ends it
/// and has it forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemMount {
    /// Maximum time to wait for the pool to be served, seconds.
    pub wait_seconds: u64,
}

/// Makes the structs, and of all of them one enum with the name of each as the command line has it.
macro_rules! requests {
    ($(
        $(#[$doc:meta])*
        $name:ident as $words:literal {$( $(#[$field_doc:meta])* $field:ident: $type:ty ),* $(,)?}
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $name {
                $( $(#[$field_doc])* pub $field: $type, )*
            }

            impl From<$name> for Request {
                fn from(asked: $name) -> Self {
                    Self::$name(asked)
                }
            }
        )*

        /// Something that is asked.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "ask", content = "of", rename_all = "snake_case")]
        pub enum Request {
            $( $(#[$doc])* $name($name), )*
        }

        impl Request {
            /// Name of the command on the command line.
            pub fn name(&self) -> &'static str {
                match self {
                    $( Self::$name(_) => $words, )*
                }
            }

            /// Its fields.
            fn fields(&self) -> serde_json::Value {
                let fields = match self {
                    $( Self::$name(asked) => serde_json::to_value(asked), )*
                };
                // A path that is not UTF-8 makes this fail; its use reports the error.
                fields.unwrap_or_default()
            }
        }
    };
}

requests! {
    /// The pools on the list, served or not.
    ListPools as "pool list" {}
    /// State of pools.
    ShowPools as "pool status" {
        /// The pool; all known ones if left out.
        pool: Option<PoolName>,
    }
    /// To make a pool of drives.
    CreatePool as "pool create" {
        /// Its name.
        pool: PoolName,
        /// Files, block devices, volumes of other pools, or exports of NBD servers.
        drives: Vec<String>,
        /// Drives that take over by themselves when another fails.
        spares: Vec<String>,
        /// Drives for journals.
        journals: Vec<String>,
        /// Drives for what is asked for most.
        fast: Vec<String>,
        /// Space is handed out in pieces of this size.
        slab_bytes: Option<u64>,
        /// Overwrite drives that hold something.
        force: bool,
    }
    /// To find pools on drives, and to import those that are named.
    ImportPools as "pool import" {
        /// Folders to look into.
        folders: Vec<PathBuf>,
        /// Drives to look at.
        drives: Vec<String>,
        /// The one to import, by name or identity.
        pool: Option<String>,
        /// Import all that are found.
        all: bool,
        /// The name that the pool gets.
        new_name: Option<PoolName>,
        /// Take it from another host, and drives as they are.
        force: bool,
        /// Give a copy of a pool an identity of its own.
        #[serde(default)]
        new_identity: bool,
        /// Destroyed pools, and no others.
        #[serde(default)]
        destroyed: bool,
    }
    /// To take a pool off the list, and use its drives elsewhere.
    ExportPool as "pool export" {
        /// The pool.
        pool: PoolName,
    }
    /// To give a pool another name.
    RenamePool as "pool rename" {
        /// The pool.
        pool: PoolName,
        /// Its new name.
        new_name: PoolName,
    }
    /// Events of a pool.
    ListEvents as "pool events" {
        /// The pool.
        pool: PoolName,
        /// Show only the last N events.
        last: Option<usize>,
    }
    /// I/O statistics of a pool's drives and volumes.
    ShowLoad as "pool iostat" {
        /// The pool.
        pool: PoolName,
        /// Length of an interval; left out: since the pool was opened.
        seconds: Option<f64>,
        /// Number of intervals.
        count: Option<u32>,
        /// For people: also what the requests to drives were for. Documents have that always.
        causes: bool,
    }
    /// To put drives into a pool.
    AddDrives as "pool add" {
        /// The pool.
        pool: PoolName,
        /// The drives.
        drives: Vec<String>,
        /// Role of the drives.
        role: DriveRole,
        /// Overwrite drives that hold something.
        force: bool,
    }
    /// To take a drive out that holds nothing of the pool.
    RemoveDrive as "pool remove" {
        /// The pool.
        pool: PoolName,
        /// The drive.
        drive: String,
    }
    /// To empty a drive, and let go of it.
    RetireDrive as "pool retire" {
        /// The pool.
        pool: PoolName,
        /// The drive.
        drive: String,
        /// To wait until that is done.
        wait: bool,
    }
    /// To stop using a drive for a while.
    TakeOffline as "pool offline" {
        /// The pool.
        pool: PoolName,
        /// The drive.
        drive: String,
    }
    /// To use a drive again.
    BringOnline as "pool online" {
        /// The pool.
        pool: PoolName,
        /// The drive.
        drive: String,
        /// To wait until what changed is copied to it.
        wait: bool,
    }
    /// To put a new drive in the place of another.
    ReplaceDrive as "pool replace" {
        /// The pool.
        pool: PoolName,
        /// The drive that goes.
        old: String,
        /// The drive that comes.
        new: String,
        /// Overwrite it even if it holds something.
        force: bool,
        /// Also by one that makes the pool smaller.
        #[serde(default)]
        yes: bool,
        /// To wait until it is filled.
        wait: bool,
    }
    /// To use the space of drives that became larger.
    GrowPool as "pool grow" {
        /// The pool.
        pool: PoolName,
        /// The drives; all that became larger if left out.
        drives: Vec<String>,
        /// Also drives with data, which are filled again.
        yes: bool,
        /// To wait until they are filled.
        wait: bool,
    }
    /// To spread volumes over all data drives.
    Rebalance as "pool rebalance" {
        /// The pool.
        pool: PoolName,
        /// To wait until that is done.
        wait: bool,
        /// To stop it.
        stop: bool,
    }
    /// To read and compare every stripe.
    Scrub as "pool scrub" {
        /// The pool.
        pool: PoolName,
        /// To wait until that is done.
        wait: bool,
        /// To report what is wrong and where, and to write nothing.
        #[serde(default)]
        check_only: bool,
    }
    /// To acknowledge what the status reports of drives.
    Clear as "pool clear" {
        /// The pool.
        pool: PoolName,
        /// The drive; all if left out.
        drive: Option<String>,
    }
    /// To wait until no job of a kind is to be done.
    WaitForJob as "pool wait" {
        /// The pool.
        pool: PoolName,
        /// The kind.
        job: JobKind,
    }
    /// To change settings of a pool.
    ChangeSettings as "pool set" {
        /// The pool.
        pool: PoolName,
        /// The settings.
        settings: Vec<Setting>,
    }
    /// The settings of a pool.
    GetSettings as "pool get" {
        /// The pool.
        pool: PoolName,
        /// The setting; all if left out.
        key: Option<String>,
    }
    /// To end a pool with all that is in it.
    DestroyPool as "pool destroy" {
        /// The pool.
        pool: PoolName,
        /// That is meant.
        yes: bool,
        /// Erase its drives, so that it cannot be brought back.
        #[serde(default)]
        wipe: bool,
    }
    /// The volumes of pools.
    ListVolumes as "volume list" {
        /// The pool; all known ones if left out.
        pool: Option<PoolName>,
    }
    /// A volume.
    ShowVolume as "volume show" {
        /// The volume.
        volume: VolumeName,
    }
    /// To make a volume.
    CreateVolume as "volume create" {
        /// Its pool and name.
        volume: VolumeName,
        /// Its layout.
        layout: LayoutSpec,
        /// Usable bytes, or a share of the room; all the room there is if left out.
        size_bytes: Option<WantedSize>,
        /// It takes room only as it is written.
        thin: bool,
        /// Acknowledge small writes from the journal.
        write_back: Option<bool>,
        /// Block checksums; on if left out.
        checksums: Option<bool>,
        /// Class of drives that the volume stays on.
        pin: Pin,
        /// It never overwrites, and clients do not get this share of its space, percent.
        log_reserve_percent: Option<u32>,
        /// Number of slices; one if left out.
        #[serde(default)]
        slices: Option<u32>,
    }
    /// To give a volume another size.
    ResizeVolume as "volume resize" {
        /// The volume.
        volume: VolumeName,
        /// Its bytes from now on, a share of the room, or a difference.
        size_bytes: WantedSize,
    }
    /// To give a volume another layout, or to take that back.
    ConvertVolume as "volume convert" {
        /// The volume.
        volume: VolumeName,
        /// The layout to be; left out: unchanged, or without `slices` back to the one that it had.
        layout: Option<LayoutSpec>,
        /// Number of slices to be; left out: unchanged.
        #[serde(default)]
        slices: Option<u32>,
        /// Also to one that survives the loss of fewer drives.
        yes: bool,
        /// To wait until that is done.
        wait: bool,
    }
    /// To keep a volume on drives of a kind.
    PinVolume as "volume pin" {
        /// The volume.
        volume: VolumeName,
        /// Class of drives that the volume stays on.
        pin: Pin,
        /// To wait until its rows are there.
        wait: bool,
    }
    /// To change settings of a volume.
    SetVolume as "volume set" {
        /// The volume.
        volume: VolumeName,
        /// The settings.
        settings: Vec<VolumeSetting>,
    }
    /// Bytes of a volume.
    ReadVolume as "volume read" {
        /// The volume, or a snapshot of one.
        volume: ReadableName,
        /// The first byte.
        offset: u64,
        /// Number of bytes; to the volume's end if left out.
        length: Option<u64>,
    }
    /// To put the input's bytes into a volume.
    WriteVolume as "volume write" {
        /// The volume.
        volume: VolumeName,
        /// Offset of the first byte.
        offset: u64,
    }
    /// To erase a volume.
    DeleteVolume as "volume delete" {
        /// The volume.
        volume: VolumeName,
        /// That is meant.
        yes: bool,
    }
    /// To take snapshots of volumes.
    CreateSnapshots as "snapshot create" {
        /// The snapshots; those of a pool are of one instant.
        snapshots: Vec<SnapshotName>,
    }
    /// The snapshots of pools, or of a volume.
    ListSnapshots as "snapshot list" {
        /// The pool; all known ones if left out.
        pool: Option<PoolName>,
        /// Its volume; all if left out.
        volume: Option<VolumeName>,
    }
    /// To delete snapshots.
    DeleteSnapshots as "snapshot delete" {
        /// The snapshots.
        snapshots: Vec<SnapshotName>,
    }
    /// To give a volume the contents of a snapshot.
    RollBack as "snapshot rollback" {
        /// The snapshot.
        snapshot: SnapshotName,
        /// Delete the snapshots that were taken later.
        delete_newer: bool,
    }
    /// To make a volume that begins as a snapshot.
    CloneSnapshot as "snapshot clone" {
        /// The snapshot.
        snapshot: SnapshotName,
        /// The new volume, of the same pool.
        target: VolumeName,
    }
    /// The ranges in which two snapshots of a volume differ.
    CompareSnapshots as "snapshot diff" {
        /// The older one.
        snapshot: SnapshotName,
        /// The newer one, or the volume as it is now.
        newer: Box<ReadableName>,
        /// Offset from which ranges are shown.
        offset: u64,
        /// Most ranges to show; a usual number if left out.
        limit: Option<usize>,
    }
    /// A snapshot as a stream of bytes.
    SendSnapshot as "snapshot send" {
        /// The snapshot.
        snapshot: SnapshotName,
        /// An older one, which the receiver has: only what changed since is sent.
        from: Option<OwnName>,
    }
    /// To put the input's stream into a volume.
    ReceiveSnapshot as "snapshot receive" {
        /// The volume; created by a whole stream.
        volume: VolumeName,
        /// Layout of the new volume; left out: as the stream says.
        layout: Option<LayoutSpec>,
        /// Share of its space that clients do not get, percent; left out: as the stream says.
        log_reserve_percent: Option<u32>,
    }
    /// The drives of pools.
    ListDrives as "drive list" {
        /// The pool; all known ones if left out.
        pool: Option<PoolName>,
    }
    /// Contents of drives.
    ShowDrives as "drive show" {
        /// Paths, volumes, NBD URIs, or identities of known drives.
        drives: Vec<PathBuf>,
    }
    /// To have the daemon mount volumes as files, or the file system on one.
    Mount as "mount" {
        /// The pool.
        pool: PoolName,
        /// The volume with the file system; left out: all volumes as files.
        volume: Option<VolumeName>,
        /// Mount point: an empty folder.
        folder: PathBuf,
        /// Type of the file system; created if the volume is empty.
        file_system: Option<FileSystem>,
        /// Options of `mount` for the file system.
        options: Vec<String>,
        /// Set for a mount of the system's `mount`, as of a line in `/etc/fstab`.
        of_system: Option<SystemMount>,
    }
    /// To end a mount of the daemon.
    Unmount as "umount" {
        /// Pool, volume, or mount point.
        target: PathBuf,
    }
    /// To switch the light of a drive's slot.
    LocateDrive as "drive locate" {
        /// Path, or identity of a known drive.
        drive: PathBuf,
        /// On or off.
        on: bool,
    }
    /// To erase a drive of no pool.
    ClearDrive as "drive clear" {
        /// File, block device, volume of a pool or export of an NBD server.
        drive: String,
        /// That is meant.
        yes: bool,
        /// Also one of a pool that another host has not exported.
        force: bool,
    }
    /// To send a test alert by every way.
    TestAlerts as "alert test" {}
}

impl Request {
    /// Role that the caller needs.
    pub fn needs(&self) -> Role {
        match self {
            Self::ListPools(_)
            | Self::ShowPools(_)
            | Self::ListEvents(_)
            | Self::ShowLoad(_)
            | Self::GetSettings(_)
            | Self::ListDrives(_)
            | Self::ListVolumes(_)
            | Self::ListSnapshots(_)
            | Self::CompareSnapshots(_)
            | Self::ShowVolume(_) => Role::Read,
            Self::AddDrives(AddDrives { force: true, .. })
            | Self::ReplaceDrive(ReplaceDrive { force: true, .. })
            // To a layout that survives less.
            | Self::ConvertVolume(ConvertVolume { yes: true, .. })
            | Self::CreatePool(_)
            | Self::ImportPools(_)
            | Self::ExportPool(_)
            | Self::RenamePool(_)
            | Self::DestroyPool(_)
            | Self::ClearDrive(_)
            // Overwritten data is lost.
            | Self::WriteVolume(_)
            | Self::ReceiveSnapshot(_)
            | Self::DeleteVolume(_)
            | Self::DeleteSnapshots(_)
            | Self::RollBack(_)
            // A shorter schedule keeps fewer snapshots.
            | Self::SetVolume(_)
            // The folder is one of the whole system.
            | Self::Mount(_)
            | Self::Unmount(_) => Role::Admin,
            Self::AddDrives(_)
            | Self::RemoveDrive(_)
            | Self::RetireDrive(_)
            | Self::TakeOffline(_)
            | Self::BringOnline(_)
            | Self::ReplaceDrive(_)
            | Self::GrowPool(_)
            | Self::Rebalance(_)
            | Self::Scrub(_)
            | Self::Clear(_)
            | Self::WaitForJob(_)
            | Self::ChangeSettings(_)
            | Self::CreateVolume(_)
            | Self::CreateSnapshots(_)
            | Self::CloneSnapshot(_)
            | Self::ResizeVolume(_)
            | Self::ConvertVolume(_)
            | Self::PinVolume(_)
            | Self::ReadVolume(_)
            | Self::SendSnapshot(_)
            // To look at a drive that is named by a URI is to connect there.
            | Self::ShowDrives(_)
            | Self::LocateDrive(_)
            | Self::TestAlerts(_) => Role::Operate,
        }
    }

    /// Names of the pools that the request changes, and of what else only one request may change at
    /// a time. A drive that is a volume belongs to its pool, too. In order, each once.
    pub fn changes(&self) -> Vec<String> {
        let pool_of = |drive: &String| drive.parse().ok().map(|volume: VolumeName| volume.pool);
        let mut changed: Vec<String> = match self {
            _ if self.only_looks() || self.lasts() => Vec::new(),
            Self::CreatePool(asked) => {
                let drives = [&asked.drives, &asked.spares, &asked.journals, &asked.fast];
                drives.into_iter().flatten().filter_map(pool_of).chain([asked.pool.0.clone()]).collect()
            }
            Self::AddDrives(asked) => {
                asked.drives.iter().filter_map(pool_of).chain([asked.pool.0.clone()]).collect()
            }
            Self::BringOnline(asked) => {
                pool_of(&asked.drive).into_iter().chain([asked.pool.0.clone()]).collect()
            }
            Self::ReplaceDrive(asked) => {
                pool_of(&asked.new).into_iter().chain([asked.pool.0.clone()]).collect()
            }
            Self::RenamePool(asked) => vec![asked.pool.0.clone(), asked.new_name.0.clone()],
            Self::ExportPool(ExportPool { pool })
            | Self::RemoveDrive(RemoveDrive { pool, .. })
            | Self::RetireDrive(RetireDrive { pool, .. })
            | Self::TakeOffline(TakeOffline { pool, .. })
            | Self::Rebalance(Rebalance { pool, .. })
            | Self::Scrub(Scrub { pool, .. })
            | Self::Clear(Clear { pool, .. })
            | Self::ChangeSettings(ChangeSettings { pool, .. })
            | Self::DestroyPool(DestroyPool { pool, .. }) => vec![pool.0.clone()],
            Self::CreateVolume(CreateVolume { volume, .. })
            | Self::ResizeVolume(ResizeVolume { volume, .. })
            | Self::ConvertVolume(ConvertVolume { volume, .. })
            | Self::PinVolume(PinVolume { volume, .. })
            | Self::SetVolume(SetVolume { volume, .. })
            | Self::DeleteVolume(DeleteVolume { volume, .. }) => vec![volume.pool.clone()],
            Self::CreateSnapshots(CreateSnapshots { snapshots })
            | Self::DeleteSnapshots(DeleteSnapshots { snapshots }) => {
                snapshots.iter().map(|snapshot| snapshot.volume.pool.clone()).collect()
            }
            Self::RollBack(RollBack { snapshot, .. })
            | Self::CloneSnapshot(CloneSnapshot { snapshot, .. }) => vec![snapshot.volume.pool.clone()],
            // No pool has such a name.
            _ => vec![format!(" {}", self.name())],
        };
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// True if the request only waits or transfers a volume's bytes, and may therefore take long.
    pub fn lasts(&self) -> bool {
        matches!(
            self,
            Self::WaitForJob(_)
                | Self::ShowLoad(_)
                | Self::ReadVolume(_)
                | Self::WriteVolume(_)
                | Self::SendSnapshot(_)
                | Self::ReceiveSnapshot(_)
        )
    }

    /// True if the request changes nothing. Such requests take no turn, and the log names them at
    /// debug level only.
    pub fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::ListPools(_)
                | Self::ShowPools(_)
                | Self::ListEvents(_)
                | Self::ShowLoad(_)
                | Self::GetSettings(_)
                | Self::ListDrives(_)
                | Self::ListVolumes(_)
                | Self::ListSnapshots(_)
                | Self::CompareSnapshots(_)
                | Self::ShowVolume(_)
                | Self::ReadVolume(_)
                | Self::SendSnapshot(_)
                | Self::ShowDrives(_)
                | Self::Scrub(Scrub { check_only: true, .. })
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Request> {
        let pool = || "tank".parse().expect("a name");
        let volume = || "tank/a".parse().expect("a name");
        vec![
            ListPools {}.into(),
            ShowPools { pool: None }.into(),
            AddDrives { pool: pool(), drives: vec!["/d/0".to_owned()], role: DriveRole::Spare, force: false }
                .into(),
            ChangeSettings {
                pool: pool(),
                settings: vec![Setting::PatrolRate(None), Setting::SpaceWarning(90)],
            }
            .into(),
            CreateVolume {
                volume: volume(),
                layout: "raid6".parse().expect("a layout"),
                size_bytes: Some(WantedSize::Bytes(1 << 30)),
                thin: true,
                write_back: Some(false),
                checksums: None,
                pin: Pin::Fast,
                log_reserve_percent: None,
                slices: Some(4),
            }
            .into(),
            ShowLoad { pool: pool(), seconds: Some(1.5), count: Some(3), causes: false }.into(),
        ]
    }

    #[test]
    fn requests_round_trip() {
        for request in examples() {
            let text = serde_json::to_string(&request).expect("plain data");
            assert_eq!(serde_json::from_str::<Request>(&text).ok(), Some(request), "{text}");
        }
    }

    #[test]
    fn requests_name_the_pools_that_they_change() {
        let pool = |name: &str| name.parse().expect("a name");
        let add = AddDrives {
            pool: pool("tank"),
            drives: vec!["below/a".to_owned(), "/d/0".to_owned(), "below/b".to_owned()],
            role: DriveRole::Data,
            force: false,
        };
        assert_eq!(Request::from(add).changes(), ["below", "tank"]);
        let rename = RenamePool { pool: pool("tank"), new_name: pool("lake") };
        assert_eq!(Request::from(rename).changes(), ["lake", "tank"]);
        let name = |name: &str| name.parse().expect("a name");
        let snapshots = vec![name("tank/a@x"), name("lake/a@x"), name("tank/b@x")];
        let create = Request::from(CreateSnapshots { snapshots });
        assert_eq!(create.changes(), ["lake", "tank"]);
        assert_eq!(create.to_string(), "snapshot create tank/a@x lake/a@x tank/b@x");
        let send = SendSnapshot { snapshot: name("tank/a@y"), from: Some("x".parse().expect("a name")) };
        assert_eq!(Request::from(send).to_string(), "snapshot send tank/a@y --from @x");
        assert!(Request::from(ListPools {}).changes().is_empty());
        assert_eq!(Request::from(TestAlerts {}).changes(), [" alert test"]);
    }

    #[test]
    fn requests_with_invalid_names_are_refused() {
        let text = r#"{"ask":"export_pool","of":{"pool":"--force"}}"#;
        assert!(serde_json::from_str::<Request>(text).is_err());
        assert!(serde_json::from_str::<Request>(&text.replace("--force", "tank")).is_ok());
    }

    #[test]
    fn requests_are_logged_as_commands() {
        let told: Vec<String> = examples().iter().map(ToString::to_string).collect();
        assert_eq!(told[0], "pool list");
        assert_eq!(told[1], "pool status");
        assert_eq!(told[2], "pool add tank /d/0 --role spare");
        assert_eq!(told[3], "pool set tank --settings patrol_rate=none space_warning=90");
        assert_eq!(
            told[4],
            "volume create tank/a --layout level=raid6 --pin fast --size-bytes 1073741824 --slices 4 --thin \
             --write-back off"
        );
    }
}

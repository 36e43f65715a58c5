//! Options of `pool add`, which `control/src/operations/drives/add.rs` executes.

use clap::{Args, ValueEnum};
use stripewise_control::names::PoolName;
use stripewise_control::request::AddDrives;
use stripewise_pool::Role;

/// Add drives to a pool: data, spare, journal or fast
#[derive(Args)]
#[command(after_help = "Example: stripewise pool add tank /dev/sdf --as spare")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Files, block devices, volumes of other pools, or NBD URIs
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
    /// Role of the drives: data holds volumes, spare replaces a failed drive, journal takes small
    /// writes first, fast holds frequently used data
    #[arg(long = "as", value_name = "ROLE", value_enum, default_value = "data")]
    role: RoleChoice,
    /// Overwrite drives that hold data
    #[arg(long)]
    force: bool,
}

/// Drive role on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RoleChoice {
    Data,
    Spare,
    Journal,
    Fast,
}

impl From<RoleChoice> for Role {
    fn from(choice: RoleChoice) -> Self {
        match choice {
            RoleChoice::Data => Self::Data,
            RoleChoice::Spare => Self::Spare,
            RoleChoice::Journal => Self::Journal,
            RoleChoice::Fast => Self::Fast,
        }
    }
}

impl Options {
    pub(crate) fn request(&self) -> AddDrives {
        AddDrives {
            pool: self.name.clone(),
            drives: self.drives.clone(),
            role: self.role.into(),
            force: self.force,
        }
    }
}

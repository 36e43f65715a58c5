//! Checks the systemd unit with systemd's own tools.

use std::path::Path;
use std::process::Command;

/// The unit with these drop-ins, in a temporary directory, with an existing program.
fn unit(dropins: &[&str]) -> tempfile::TempDir {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let read = |name: &str| std::fs::read_to_string(dist.join(name)).expect("a unit");
    let text: String = ["stripewise.service"].iter().chain(dropins).map(|name| read(name)).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let text = text.replace("@BINDIR@/stripewise", "/bin/true");
    std::fs::write(folder.path().join("stripewise.service"), text).expect("written");
    folder
}

fn analyze(words: &[&str], unit: &Path) -> Option<String> {
    let output = Command::new("systemd-analyze").args(words).arg(unit).output().ok()?;
    Some([output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat())
}

/// Exposure level of a unit, from 0 to 10; `None` without systemd.
fn exposure(unit: &Path) -> Option<f64> {
    let said = analyze(&["security", "--offline=true", "--no-pager"], unit)?;
    let (_, level) = said.rsplit_once("Overall exposure level for stripewise.service: ")?;
    Some(level.split(' ').next()?.parse().expect("a number"))
}

#[test]
fn the_systemd_unit_is_valid_and_sandboxed() {
    // Mounting requires root privileges, and without a mount namespace the sandbox is weaker.
    for (dropins, most) in [
        (&[][..], 3.0),
        (&["stripewise-smart.conf"], 4.0),
        (&["stripewise-fuse.conf"], 4.0),
        (&["stripewise-mount.conf"], 4.0),
    ] {
        let folder = unit(dropins);
        let path = folder.path().join("stripewise.service");
        let Some(level) = exposure(&path) else {
            println!("skipped: no systemd-analyze that can check unit files");
            return;
        };
        assert!(level < most, "{dropins:?}: {level}");
        let said = analyze(&["verify"], &path).expect("it ran before");
        assert!(!said.contains("stripewise.service:"), "{said}");
    }
}

/// Mounts of a service are visible outside only if no option gives it a mount namespace.
#[test]
fn units_that_mount_show_their_mounts_to_others() {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let read = |name: &str| std::fs::read_to_string(dist.join(name)).expect("a unit");
    let unit = read("stripewise.service");
    let dropins = ["stripewise-fuse.conf", "stripewise-mount.conf"].map(read);
    let own_view = [
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
        "ProcSubset",
        "ReadWritePaths",
        "ReadOnlyPaths",
        "InaccessiblePaths",
        "BindPaths",
        "TemporaryFileSystem",
    ];
    for name in own_view {
        let is_set = |text: &str| text.lines().any(|line| line.starts_with(&format!("{name}=")));
        let is_off = dropins.iter().all(|dropin| dropin.contains(&format!("\n{name}=no\n")));
        assert!(!is_set(&unit) || is_off, "{name} hides mounts");
    }
}

//! Runs the commands of the README and of the how-to pages as written: each must succeed and print
//! the output on the page. `…` in a page stands for any text; IDs differ.

use std::process::{Command, Stdio};

use crate::kit::{Sandbox, programs};

/// A line that no command prints.
const MARK: &str = "@@@@";

/// A command of a page, and its output on the page.
struct Step {
    command: String,
    shown: String,
}

/// Parses the commands in the `console` blocks of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut in_block = false;
    for line in page.lines() {
        if line.starts_with("```") {
            in_block = line == "```console";
        } else if in_block && let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: String::new() });
        } else if in_block && let Some(step) = steps.last_mut() {
            step.shown += line;
            step.shown += "\n";
        }
    }
    steps
}

/// Returns a script that marks the start of each command and prints its exit code. It waits for a
/// background command to print `ready`.
fn script(steps: &[Step]) -> String {
    let mut script = "exec 2>&1; trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n".to_owned();
    for Step { command, .. } in steps {
        script += &format!("printf '\\n{MARK}\\n'\n");
        match command.strip_suffix(" &") {
            Some(daemon) => {
                script += &format!(
                    ": >daemon.log\n{{ exec {daemon}; }} >daemon.log 2>&1 &\nuntil grep -qx ready daemon.log; do\n    \
                     kill -0 $! || {{ cat daemon.log; exit 1; }}; sleep 0.05\ndone\ncat daemon.log\n"
                );
            }
            None => script += &format!("{command}\n"),
        }
        script += "printf '\\nexit %d\\n' $?\n";
    }
    script
}

/// Normalises text for comparison: white space becomes one space, all IDs are equal.
fn plain(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        let name = word.trim_matches(|letter: char| !letter.is_ascii_hexdigit());
        let parts: Vec<usize> = name.split('-').map(str::len).collect();
        if parts == [8, 4, 4, 4, 12] { word.replace(name, "ID") } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Processes with a working directory below `folder`.
fn working_in(folder: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let here = processes.filter(|process| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|place| place.starts_with(folder))
    });
    here.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

/// Runs the commands of a page in a temporary directory, if the programs they need are installed.
fn works(name: &str, page: &str, needs: &[&str]) {
    if !programs::are_here(needs) {
        return;
    }
    let steps = steps(page);
    assert!(steps.len() > 5, "{name} has commands");
    let sandbox = Sandbox::new();
    let folder = sandbox.text("");
    let folder = folder.trim_end_matches('/');
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_stripewise"));
    let beside = program.parent().expect("a folder").display();
    std::fs::create_dir(sandbox.path("home")).expect("a state folder");
    let output = Command::new("timeout")
        .args(["240", "bash", "-c", &script(&steps).replace("/run/", &format!("{folder}/"))])
        .current_dir(folder)
        .env("PATH", format!("{beside}:{}", programs::search_path()))
        .env("STRIPEWISE_HOME", sandbox.path("home"))
        .env("NO_COLOR", "1")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .expect("bash");
    let left = working_in(folder);
    assert!(left.is_empty(), "{name}: processes {left:?} are left behind");
    let said = String::from_utf8_lossy(&output.stdout).replace(folder, "/srv/tour");
    let answers: Vec<&str> = said.split(MARK).skip(1).collect();
    assert_eq!(answers.len(), steps.len(), "{name}: all commands ran:\n{said}");
    for (Step { command, shown }, answer) in steps.iter().zip(answers) {
        let code = answer.trim_end().rsplit(' ').next().expect("a code");
        let expected: &[&str] = match command {
            _ if shown.starts_with("error:") => &["1"],
            _ if command.starts_with("stripewise pool status") => &["0", "3"],
            _ => &["0"],
        };
        assert!(expected.contains(&code), "{name}: `{command}` ended with {code}:\n{answer}");
        let answer = plain(answer);
        let mut rest = answer.as_str();
        for part in shown.split('…').map(plain) {
            let at = rest.find(&part);
            let at = at.unwrap_or_else(|| panic!("{name}: `{command}` shows\n{part}\nbut printed\n{answer}"));
            rest = &rest[at + part.len()..];
        }
    }
}

#[test]
fn the_tour_of_the_readme_works() {
    works("README.md", include_str!("../../../../README.md"), &["bash", "nbdinfo"]);
}

#[test]
fn replacing_a_drive_works_as_documented() {
    works("replace-a-drive.md", include_str!("../../../../docs/replace-a-drive.md"), &["bash"]);
}

#[test]
fn moving_a_pool_works_as_documented() {
    works("import-a-pool.md", include_str!("../../../../docs/import-a-pool.md"), &["bash"]);
}

#[test]
fn serving_to_qemu_works_as_documented() {
    works(
        "serve-to-qemu.md",
        include_str!("../../../../docs/serve-to-qemu.md"),
        &["bash", "qemu-img", "qemu-io"],
    );
}

/// The libvirt schema, where it is installed, decides whether the disk is valid in a domain.
#[test]
fn the_disk_for_libvirt_is_valid() {
    let page = include_str!("../../../../docs/serve-to-qemu.md");
    let disk = page.split("```xml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a disk");
    assert!(disk.contains("socket='/run/stripewise/nbd.sock'") && disk.contains("name='tank/vm'"), "{disk}");
    let mut depth = 0;
    for tag in disk.split('<').skip(1).map(|rest| rest.split('>').next().expect("a tag")) {
        depth += i32::from(!tag.starts_with('/') && !tag.ends_with('/'));
        depth -= i32::from(tag.starts_with('/'));
    }
    assert_eq!(depth, 0, "each element is closed: {disk}");
    if !programs::are_here(&["virt-xml-validate"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let domain = format!(
        "<domain type='kvm'><name>vm</name><memory>1</memory><os><type>hvm</type></os><devices>{disk}\
         </devices></domain>"
    );
    std::fs::write(sandbox.path("vm.xml"), domain).expect("written");
    programs::succeeds(&["virt-xml-validate", &sandbox.text("vm.xml"), "domain"]);
}

#[test]
fn alerts_work_as_documented() {
    works("alerts.md", include_str!("../../../../docs/alerts.md"), &["bash", "jq", "curl"]);
}

#[test]
fn a_file_system_comes_back_as_documented() {
    if programs::is_possible(&["bash", "mkfs.ext4", "losetup"]) {
        works("file-system.md", include_str!("../../../../docs/file-system.md"), &["bash"]);
    }
}

#[test]
fn growing_an_array_works_as_documented() {
    works("grow.md", include_str!("../../../../docs/grow.md"), &["bash"]);
}

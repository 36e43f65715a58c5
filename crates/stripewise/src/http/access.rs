//! Access control of the HTTP interface: a file of tokens and local users, each with a role. It is
//! read again when it changes, so adding or withdrawing a token needs no restart.
//!
//! ```text
//! token NAME ROLE SECRET     sent as `Authorization: Bearer SECRET`
//! user UID|NAME ROLE         a user of this machine, over a unix socket
//! ```
//!
//! A file that holds one word only is one `admin` token. The daemon's own user and root are `admin`
//! over a unix socket without a line.
//!
//! Expected faults: a file that is missing (no tokens), readable by other users, or wrong (none of
//! its tokens is valid until it is right again: a token that was just withdrawn must not stay
//! valid), a file that changes while it is read (it is read again).

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use stripewise_control::registry::own_user;
use stripewise_control::roles::Role;
use stripewise_export::ClientId;
use stripewise_runtime::read_small_file;

use crate::failure::{Failure, Result, system_text};

/// A shorter secret can be guessed.
const LEAST_SECRET_BYTES: usize = 16;
/// Bytes of randomness in a token that the daemon makes.
const RANDOM_BYTES: usize = 32;
/// A longer file is not one of tokens.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Tokens and users, as one version of the file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    tokens: Vec<Token>,
    users: Vec<(u32, Role)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    name: String,
    role: Role,
    secret: String,
}

impl Access {
    /// From the file's text; an error names the line.
    fn parse(text: &str) -> std::result::Result<Self, String> {
        if let [secret] = text.split_whitespace().collect::<Vec<_>>()[..] {
            check_secret(secret)?;
            let token = Token { name: "token".to_owned(), role: Role::Admin, secret: secret.to_owned() };
            return Ok(Self { tokens: vec![token], users: Vec::new() });
        }
        let mut access = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                access.add(line).map_err(|why| format!("line {}: {why}", index + 1))?;
            }
        }
        Ok(access)
    }

    fn add(&mut self, line: &str) -> std::result::Result<(), String> {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["token", name, role, secret] => {
                let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
                if name.len() > 63 || !name.chars().all(is_plain) {
                    return Err("a token's name has at most 63 letters, digits, `.`, `_` and `-`".to_owned());
                }
                if self.tokens.iter().any(|token| token.name == name || token.secret == secret) {
                    return Err(format!("there is another token with the name or the secret of `{name}`"));
                }
                check_secret(secret)?;
                let role = role.parse()?;
                self.tokens.push(Token { name: name.to_owned(), role, secret: secret.to_owned() });
            }
            ["user", user, role] => {
                let number = user.parse().ok().or_else(|| user_number(user));
                let number = number.ok_or_else(|| format!("there is no user `{user}` on this machine"))?;
                self.users.push((number, role.parse()?));
            }
            _ => return Err("not `token NAME ROLE SECRET` and not `user NAME ROLE`".to_owned()),
        }
        Ok(())
    }

    /// The name and role of the token with this secret. Takes as long for any secret of a length.
    pub(super) fn token(&self, secret: &str) -> Option<(String, Role)> {
        let same = |token: &Token| is_same(token.secret.as_bytes(), secret.as_bytes());
        let found =
            self.tokens.iter().fold(None, |found, token| if same(token) { Some(token) } else { found });
        found.map(|token| (token.name.clone(), token.role))
    }

    /// The secret and the role of a token, by its name.
    pub(super) fn named(&self, name: &str) -> Option<(&str, Role)> {
        let token = self.tokens.iter().find(|token| token.name == name)?;
        Some((&token.secret, token.role))
    }

    /// The role of a user of this machine.
    pub(super) fn user(&self, user: u32) -> Option<Role> {
        if Self::is_owner(user) {
            return Some(Role::Admin);
        }
        self.users.iter().find(|(number, _)| *number == user).map(|(_, role)| *role)
    }

    /// True if a caller that an earlier version admitted still has the same secret and role.
    pub(super) fn still_admits(&self, client: &ClientId, earlier: &Self) -> bool {
        match client {
            ClientId::Named(token) => self.named(token) == earlier.named(token),
            ClientId::User { user, .. } => self.user(*user) == earlier.user(*user),
            _ => true,
        }
    }

    /// True if the daemon runs as this user, or the user is root.
    pub(super) fn is_owner(user: u32) -> bool {
        user == 0 || own_user() == Some(user)
    }
}

fn check_secret(secret: &str) -> std::result::Result<(), String> {
    match secret.len() >= LEAST_SECRET_BYTES && secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err(format!("a secret has {LEAST_SECRET_BYTES} printable characters or more")),
    }
}

fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// A user's number, from the list of this machine.
fn user_number(name: &str) -> Option<u32> {
    let list = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut users = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
    users.find(|fields| fields.first() == Some(&name))?.get(2)?.parse().ok()
}

/// Version of the file: inode, length, time of change.
type Stamp = (u64, u64, i64, i64);

#[derive(Default)]
struct Version {
    stamp: Option<Stamp>,
    access: Arc<Access>,
    /// Why it cannot be used; said once for each version.
    wrong: Option<String>,
}

/// The file, as it is now.
pub(super) struct AccessFile {
    path: PathBuf,
    last: Mutex<Version>,
}

impl AccessFile {
    /// The file at `path`, which must be right where it is there. `is_needed`: tokens are what lets
    /// callers in, so one is made if there is no file yet.
    pub(super) fn open(path: &Path, is_needed: bool) -> Result<Self> {
        if is_needed {
            make_first_token(path)?;
        }
        let file = Self { path: path.to_owned(), last: Mutex::default() };
        file.current();
        let wrong = file.last().wrong.clone();
        wrong.map_or(Ok(file), |why| {
            Err(Failure::new(format!("cannot use the tokens in {}: {why}", path.display())).hint(
                "each line is `token NAME read|operate|admin SECRET` or `user NAME read|operate|admin`; `openssl rand -hex 32` \
                 makes a secret; the file's mode is 0600",
            ))
        })
    }

    /// Path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The current tokens and users; reads the file again if it has changed.
    pub(super) fn current(&self) -> Arc<Access> {
        let stamp = stamp_of(&self.path);
        let mut last = self.last();
        if stamp.is_some() && last.stamp == stamp {
            return last.access.clone();
        }
        let (access, wrong) = match read(&self.path) {
            Ok(access) => (access, None),
            Err(why) => (Access::default(), Some(why)),
        };
        if last.wrong != wrong
            && let Some(why) = &wrong
        {
            tracing::warn!(target: "client", "HTTP: no token of {} is valid: {why}", self.path.display());
        } else if last.stamp.is_some() {
            tracing::info!(target: "client", "HTTP: the tokens in {} were read again", self.path.display());
        }
        // The stamp was taken before the read, so a change during the read is seen next time.
        *last = Version { stamp, access: Arc::new(access), wrong };
        last.access.clone()
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Version> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamp_of(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
}

fn read(path: &Path) -> std::result::Result<Access, String> {
    // The mode and owner are those of the file that was read, whatever is at the path by now.
    let (bytes, found) = match read_small_file(path, MAX_FILE_BYTES) {
        Ok(read) => read,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Access::default()),
        Err(error) => return Err(system_text(&error)),
    };
    if found.mode() & 0o077 != 0 {
        return Err(format!("other users may read it (mode {:04o}): `chmod 600` it", found.mode() & 0o7777));
    }
    if found.uid() != 0 && Some(found.uid()) != own_user() {
        return Err(format!("it belongs to another user ({})", found.uid()));
    }
    Access::parse(std::str::from_utf8(&bytes).map_err(|_| "it is not text".to_owned())?)
}

/// Makes the file with one `admin` token, unless there is one.
fn make_first_token(path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot make a token for HTTP in {}: {}", path.display(), system_text(&error)))
            .hint("--http-token-file names another file")
    };
    let mut random = [0; RANDOM_BYTES];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(failed)?;
    let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = format!(
        "# Who may use this daemon over HTTP. Read again whenever it changes. Roles: read, operate, admin.\n\
         #   token NAME ROLE SECRET    sent as `Authorization: Bearer SECRET`\n\
         #   user NAME ROLE            a user of this machine, over a unix socket\n\
         token admin admin {secret}\n"
    );
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made.and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_have_names_and_roles() {
        let text = "# who\n\ntoken eyes read 0123456789abcdef\ntoken hands operate 0123456789abcdeg\nuser 4711 operate\n";
        let access = Access::parse(text).expect("right");
        assert_eq!(access.token("0123456789abcdef"), Some(("eyes".to_owned(), Role::Read)));
        assert_eq!(access.token("0123456789abcdeg"), Some(("hands".to_owned(), Role::Operate)));
        for wrong in ["", "0123456789abcdeh", "0123456789abcde", "0123456789abcdef0"] {
            assert_eq!(access.token(wrong), None, "{wrong}");
        }
        assert_eq!(access.user(4711), Some(Role::Operate));
        assert_eq!(access.user(4712), None, "a user without a line has no role");
        assert_eq!(access.user(0), Some(Role::Admin));
        assert_eq!(access.user(own_user().expect("a user")), Some(Role::Admin));
        let alone = Access::parse("0123456789abcdef\n").expect("right");
        assert_eq!(alone.token("0123456789abcdef"), Some(("token".to_owned(), Role::Admin)));
    }

    #[test]
    fn an_invalid_token_line_is_named() {
        for (text, why) in [
            ("short", "16 printable"),
            ("token a read 0123456789abcdef\ntoken b king 0123456789abcdeg", "line 2: `king` is not a role"),
            ("token a read short x", "line 1: not `token"),
            ("token a read short", "line 1: a secret has 16"),
            ("token a read 0123456789abcdef\ntoken a admin 0123456789abcdeg", "line 2: there is another"),
            ("token a read 0123456789abcdef\ntoken b admin 0123456789abcdef", "line 2: there is another"),
            ("user no-such-user-here read", "line 1: there is no user"),
        ] {
            let error = Access::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn token_changes_apply_and_a_bad_file_admits_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let file = AccessFile::open(&path, true).expect("made");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        let text = std::fs::read_to_string(&path).expect("text");
        let secret = text.split_whitespace().last().expect("a secret").to_owned();
        assert_eq!(secret.len(), 2 * RANDOM_BYTES);
        assert_eq!(file.current().token(&secret), Some(("admin".to_owned(), Role::Admin)));
        AccessFile::open(&path, true).expect("there already");
        assert_eq!(std::fs::read_to_string(&path).expect("text"), text, "made once");

        std::fs::write(&path, "token a read 0123456789abcdef\n").expect("written");
        assert_eq!(file.current().token("0123456789abcdef"), Some(("a".to_owned(), Role::Read)));
        assert_eq!(file.current().token(&secret), None, "a token that is gone is not valid");
        std::fs::write(&path, "token a read 0123456789abcdef\nrubbish\n").expect("written");
        assert_eq!(file.current().token("0123456789abcdef"), None);
        std::fs::write(&path, "token a read 0123456789abcdef\n").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
        assert_eq!(file.current().token("0123456789abcdef"), None, "others may read it");
        assert!(
            AccessFile::open(&path, true).err().expect("refused").message.contains("other users may read")
        );
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(*file.current(), Access::default());
    }
}

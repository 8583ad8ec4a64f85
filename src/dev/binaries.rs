//! Where `initdb` and `postgres` are.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// The oldest major version that our SQL is written for.
const OLDEST_MAJOR: u32 = 13;

/// A directory that holds `initdb` and `postgres` of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    dir: PathBuf,
    version: String,
    major: u32,
}

impl Binaries {
    /// Finds the programs: in `given` and nowhere else if it is set; otherwise in PATH, then where the
    /// distributions put them (the newest first), then in what `--fetch` has put into the cache.
    ///
    /// Returns [`Error::Settings`] for a directory given that cannot be used, and [`Error::Local`] with the ways
    /// out when nothing is found.
    pub fn find(given: Option<&Path>) -> Result<Self> {
        if let Some(dir) = given {
            return Self::in_dir(dir).map_err(|reason| Error::Settings {
                what: format!(
                    "cannot use the PostgreSQL programs in {}: {reason}",
                    dir.display()
                ),
            });
        }
        let mut rejected = Vec::new();
        for dir in candidates() {
            match Self::in_dir(&dir) {
                Ok(found) => return Ok(found),
                // A directory without the programs is the normal case and not worth a word.
                Err(_) if !dir.join("postgres").exists() => {}
                Err(reason) => rejected.push(format!("{} ({reason})", dir.display())),
            }
        }
        let seen = if rejected.is_empty() {
            String::new()
        } else {
            format!("; looked at and not usable: {}", rejected.join(", "))
        };
        Err(Error::Local {
            what: format!(
                "no PostgreSQL server programs (initdb and postgres, version {OLDEST_MAJOR} or later) found{seen}; \
                 install them (Debian and Ubuntu: `apt-get install postgresql`), name their directory with \
                 --pg-bindir, or let `idemctl dev up --fetch` download them"
            ),
        })
    }

    /// Looks at one directory; the error says in a few words why it will not do.
    fn in_dir(dir: &Path) -> Result<Self, String> {
        for program in ["initdb", "postgres"] {
            if !dir.join(program).is_file() {
                return Err(format!("there is no {program}"));
            }
        }
        // Links in a common directory (/usr/local/bin) may lead to the programs of one installation; its own
        // directory is what the server has to be started from.
        let real = dir
            .join("postgres")
            .canonicalize()
            .map_err(|e| format!("postgres: {e}"))?;
        let dir = match real.parent() {
            Some(parent) if parent.join("initdb").is_file() => parent.to_owned(),
            _ => dir.to_owned(),
        };
        // Both are run: one of the two may lack a library.
        let said = run_version(&dir.join("initdb"))?;
        parse_version(&said)
            .ok_or_else(|| format!("`initdb --version` says {said:?}, which is no PostgreSQL"))?;
        let said = run_version(&dir.join("postgres"))?;
        let (version, major) = parse_version(&said)
            .ok_or_else(|| format!("`postgres --version` says {said:?}, which is no PostgreSQL"))?;
        if major < OLDEST_MAJOR {
            return Err(format!("version {version} is older than {OLDEST_MAJOR}"));
        }
        Ok(Self { dir, version, major })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The version as the server writes it, such as `15.18`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The major version.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The path of one program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

fn run_version(program: &Path) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{} cannot be run: {why}", program.display());
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|e| failed(&e))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` is `15.18`, 15; `19devel` and `19beta1` are 19.
fn parse_version(text: &str) -> Option<(String, u32)> {
    let version = text.split("(PostgreSQL) ").nth(1)?.split_whitespace().next()?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((version.to_owned(), digits.parse().ok()?))
}

fn candidates() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    // A relative entry of PATH would make the answer depend on where the command was called.
    dirs.retain(|dir| dir.is_absolute());
    for (parent, prefix, below) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/opt/homebrew/opt", "postgresql@", "bin"),
        ("/usr/local/opt", "postgresql@", "bin"),
        ("/Applications/Postgres.app/Contents/Versions", "", "bin"),
    ] {
        dirs.extend(versions_below(Path::new(parent), prefix, below));
    }
    for cache in super::directory::cache_dirs() {
        dirs.extend(versions_below(&cache, "", "bin"));
    }
    dirs
}

/// `parent/PREFIXversion/below` for each version there is, the newest first.
fn versions_below(parent: &Path, prefix: &str, below: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else {
        // Most of these places exist on no one machine.
        return Vec::new();
    };
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name();
            let numbers: Option<Vec<u32>> = name
                .to_str()?
                .strip_prefix(prefix)?
                .split('.')
                .map(|part| part.parse().ok())
                .collect();
            Some((numbers?, entry.path().join(below)))
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_kinds_are_read() {
        let debian = parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)");
        assert_eq!(debian, Some(("15.18".to_owned(), 15)));
        assert_eq!(
            parse_version("postgres (PostgreSQL) 19beta1"),
            Some(("19beta1".to_owned(), 19))
        );
        assert_eq!(parse_version("postgres (OtherSQL) 15"), None);
        assert_eq!(parse_version(""), None);
    }

    #[test]
    fn the_newest_version_comes_first_by_number() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["9.6", "15", "13", "lost+found"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let found = versions_below(dir.path(), "", "bin");
        let expected: Vec<_> = ["15/bin", "13/bin", "9.6/bin"]
            .iter()
            .map(|p| dir.path().join(p))
            .collect();
        assert_eq!(found, expected);
    }
}

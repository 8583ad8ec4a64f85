//! The directory that belongs to one server: who may enter it, what lies in it, and its two locks.
//!
//! ```text
//! DIR/              0700, owned by the server's user
//!     start.lock    held by whoever is starting a server, and by an initdb that outlived its parent
//!     server.lock   held by every process of the running server: free means that none of them lives
//!     data/         the cluster; it appears here complete, by rename
//!     server.log
//!     .s.PGSQL.5432 the socket, unless the path is too long for one
//! ```

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::identity::Identity;
use crate::error::{Error, Result};

/// The longest path that fits `sockaddr_un.sun_path` with its closing NUL (unix(7): 108 bytes on Linux; the BSDs
/// and macOS have 104).
const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The socket's file name at its longest; the server makes a lock file with `.lock` behind it, which has no such limit.
const SOCKET_NAME: &str = ".s.PGSQL.65535";

/// A prepared directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
}

impl Directory {
    /// Makes the directory, or checks one that is there: only an empty one or one that we made is touched.
    pub(super) fn prepare(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|e| local("find", path, &e))?;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| local("create", parent, &e))?;
        }
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => require_ours(&path)?,
            Err(e) => return Err(local("create", &path, &e)),
        }
        let identity = Identity::for_dir(&path)?;
        identity.require_reach(&path)?;
        let directory = Self { path, identity };
        // Two starts at once both come here before either has made its lock file; doing it twice does no harm.
        directory.identity.own(&directory.path)?;
        std::fs::set_permissions(&directory.path, PermissionsExt::from_mode(0o700))
            .map_err(|e| local("set the permissions of", &directory.path, &e))?;
        Ok(directory)
    }

    /// A directory in which a server may have been started; `None` if it was never prepared.
    pub(super) fn existing(path: &Path) -> Result<Option<Self>> {
        let path = std::path::absolute(path).map_err(|e| local("find", path, &e))?;
        if !path.join("server.lock").exists() {
            return Ok(None);
        }
        let identity = Identity::for_dir(&path)?;
        Ok(Some(Self { path, identity }))
    }

    /// The cluster.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// What the server writes to its stderr.
    pub(super) fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// The lock of whoever starts a server here.
    pub(super) fn start_lock(&self) -> Result<File> {
        self.open("start.lock")
    }

    /// The lock that the server's processes hold while they live.
    pub(super) fn server_lock(&self) -> Result<File> {
        self.open("server.lock")
    }

    /// Whether any process of the server lives: then its lock is held, and the kernel knows.
    pub(super) fn server_lives(&self) -> Result<bool> {
        let path = self.path.join("server.lock");
        // Not created here: the directory may just be disappearing.
        match File::open(&path) {
            Ok(file) => Ok(try_lock(file, &path)?.is_none()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(local("open", &path, &e)),
        }
    }

    /// Opens a file of ours for appending, private to the server's user.
    pub(super) fn open(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| local("open", &path, &e))?;
        self.identity.own(&path)?;
        Ok(file)
    }

    /// The directory for the socket: this one, or a short private one when the path would be too long.
    pub(super) fn socket_dir(&self) -> Result<PathBuf> {
        if socket_fits(&self.path) {
            return Ok(self.path.clone());
        }
        let digest = Sha256::digest(self.path.as_os_str().as_encoded_bytes());
        let name = format!("idemctl-{}", crate::hex::encode(&digest[..6]));
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let places = runtime.into_iter().chain([PathBuf::from("/tmp")]);
        let dir = places
            .filter(|place| place.is_absolute() && place.is_dir())
            .map(|place| place.join(&name))
            .find(|dir| socket_fits(dir) && self.identity.require_reach(dir).is_ok())
            .ok_or_else(|| Error::Local {
                what: format!(
                    "{} is too long for a unix socket ({SOCKET_PATH_MAX} bytes with the file name), and neither \
                     $XDG_RUNTIME_DIR nor /tmp can be used instead; choose a shorter directory",
                    self.path.display()
                ),
            })?;
        self.make_private(&dir)?;
        Ok(dir)
    }

    /// Makes a directory of a predictable name in a place that others can write to: it must be ours alone.
    fn make_private(&self, dir: &Path) -> Result<()> {
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => return self.identity.own(dir),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(local("create", dir, &e)),
        }
        let found = std::fs::symlink_metadata(dir).map_err(|e| local("look at", dir, &e))?;
        if found.is_dir() && found.uid() == self.identity.uid() && found.mode().trailing_zeros() >= 6 {
            return Ok(());
        }
        Err(Error::Local {
            what: format!(
                "{} is there already and is not a private directory of uid {}; remove it or choose a shorter \
                 data directory",
                dir.display(),
                self.identity.uid()
            ),
        })
    }
}

/// Tries a lock; `None` if somebody else holds it.
pub(super) fn try_lock(file: File, what: &Path) -> Result<Option<File>> {
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(local("lock", what, &e)),
    }
}

/// An error of the operating system on one of our files.
pub(super) fn local(verb: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Local {
        what: format!("cannot {verb} {}: {error}", path.display()),
    }
}

fn socket_fits(dir: &Path) -> bool {
    dir.as_os_str().len() + 1 + SOCKET_NAME.len() <= SOCKET_PATH_MAX
}

/// A directory that somebody may have given by mistake must not be given away to another user or locked up.
fn require_ours(path: &Path) -> Result<()> {
    if path.join("start.lock").exists() {
        return Ok(());
    }
    let mut entries = std::fs::read_dir(path).map_err(|e| local("read", path, &e))?;
    if entries.next().is_none() || path.join("start.lock").exists() {
        return Ok(());
    }
    Err(Error::Settings {
        what: format!(
            "{} is not empty and was not made by `idemctl dev`; give a new or an empty directory",
            path.display()
        ),
    })
}

/// Where the development server lives unless told otherwise: `$XDG_DATA_HOME/idemctl/dev`, else
/// `~/.local/share/idemctl/dev`; for root, whose home other users cannot enter, `/var/lib/idemctl/dev`.
pub fn default_dir() -> Result<PathBuf> {
    let home = base_dir("XDG_DATA_HOME", ".local/share").map(|base| base.join("idemctl/dev"));
    let candidates = home.into_iter().chain(for_root("/var/lib/idemctl/dev"));
    first_reachable(candidates).ok_or_else(|| Error::Settings {
        what: "neither XDG_DATA_HOME nor HOME is set; say where to keep the data with --dir".to_owned(),
    })
}

/// Where fetched server programs are kept, the preferred place first.
pub(super) fn cache_dirs() -> Vec<PathBuf> {
    let home = base_dir("XDG_CACHE_HOME", ".cache").map(|base| base.join("idemctl/pg"));
    home.into_iter()
        .chain(for_root("/var/cache/idemctl/pg"))
        .filter(|dir| reachable(dir))
        .collect()
}

/// A base directory of the XDG specification: the variable if it holds an absolute path, else below HOME.
fn base_dir(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || {
        std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    set.or_else(|| Some(home()?.join(below_home)))
}

fn for_root(path: &str) -> Option<PathBuf> {
    nix::unistd::geteuid().is_root().then(|| PathBuf::from(path))
}

fn reachable(dir: &Path) -> bool {
    Identity::for_dir(dir).is_ok_and(|identity| identity.require_reach(dir).is_ok())
}

fn first_reachable(mut candidates: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    candidates.find(|dir| reachable(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_somebody_elses_things_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        let before = std::fs::metadata(dir.path()).unwrap().mode();
        let error = Directory::prepare(dir.path()).unwrap_err().to_string();
        assert!(error.contains("is not empty"), "{error}");
        assert_eq!(std::fs::metadata(dir.path()).unwrap().mode(), before);
    }

    #[test]
    fn sockets_fit_up_to_the_systems_limit() {
        let room = SOCKET_PATH_MAX - SOCKET_NAME.len() - 1;
        assert!(socket_fits(Path::new(&"x".repeat(room))));
        assert!(!socket_fits(Path::new(&"x".repeat(room + 1))));
    }
}

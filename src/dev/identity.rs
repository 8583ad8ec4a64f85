//! Which user the server runs as.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::User;

use crate::error::{Error, Result};

/// The user that server processes are started as: ourselves, or the unprivileged user that root drops to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
    /// Whether we have to become that user first.
    drop: bool,
}

impl Identity {
    /// The user for a server in `dir`: ourselves; for root, the owner of the directory if it has one other than
    /// root, else `nobody`.
    pub fn for_dir(dir: &Path) -> Result<Self> {
        let uid = nix::unistd::geteuid();
        if !uid.is_root() {
            return Ok(Self {
                uid: uid.as_raw(),
                gid: nix::unistd::getegid().as_raw(),
                drop: false,
            });
        }
        if let Ok(found) = std::fs::metadata(dir)
            && found.uid() != 0
        {
            return Ok(Self {
                uid: found.uid(),
                gid: found.gid(),
                drop: true,
            });
        }
        Self::nobody()
    }

    /// The user `nobody`, for root.
    fn nobody() -> Result<Self> {
        let user = User::from_name("nobody")
            .map_err(|e| Error::Local {
                what: format!("cannot look up the user nobody: {e}"),
            })?
            .ok_or_else(|| Error::Local {
                what:
                    "PostgreSQL does not run as root, and there is no user nobody to run it as; run this as \
                       an ordinary user"
                        .to_owned(),
            })?;
        Ok(Self {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            drop: true,
        })
    }

    /// The numeric user id.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Makes a command run as this user.
    pub fn apply(self, command: &mut Command) {
        if self.drop {
            // The standard library also clears the supplementary groups when root sets a uid.
            command.uid(self.uid).gid(self.gid);
        }
    }

    /// Gives a file or directory to this user.
    pub fn own(self, path: &Path) -> Result<()> {
        if !self.drop {
            return Ok(());
        }
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid)).map_err(|e| Error::Local {
            what: format!("cannot give {} to uid {}: {e}", path.display(), self.uid),
        })
    }

    /// Checks that this user can reach `path` through all directories above it, by their permission bits.
    pub fn require_reach(self, path: &Path) -> Result<()> {
        if !self.drop {
            return Ok(());
        }
        match path
            .ancestors()
            .skip(1)
            .filter(|dir| !dir.as_os_str().is_empty())
            .find(|dir| !self.may_enter(dir))
        {
            None => Ok(()),
            Some(blocked) => Err(Error::Local {
                what: format!(
                    "the server runs as uid {} (PostgreSQL refuses to run as root), which may not enter {}; \
                     choose a place that every user can reach, or run this as an ordinary user",
                    self.uid,
                    blocked.display()
                ),
            }),
        }
    }

    fn may_enter(self, dir: &Path) -> bool {
        let Ok(found) = std::fs::metadata(dir) else {
            // What does not exist yet is made by us with the usual permissions.
            return true;
        };
        let bit = if found.uid() == self.uid {
            0o100
        } else if found.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        found.mode() & bit != 0
    }
}

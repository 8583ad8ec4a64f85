//! Credentials that systemd hands to a service.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The variable that names the directory of a unit's credentials (systemd.exec(5), `LoadCredential=`).
pub const DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// Longest name of a credential, in bytes: that of a file's name on Linux.
const MAX_NAME_BYTES: usize = 255;

/// The name of a credential, as `LoadCredential=` and `SetCredential=` take it (systemd.exec(5)): a file's name of
/// printable ASCII characters without `:` and `/`. It is no secret itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Credential(String);

impl TryFrom<String> for Credential {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let fits = |byte: u8| matches!(byte, b' '..=b'~') && byte != b':' && byte != b'/';
        if name.is_empty()
            || name.len() > MAX_NAME_BYTES
            || name == "."
            || name == ".."
            || !name.bytes().all(fits)
        {
            return Err(format!(
                "{name:?} is no name of a credential: 1 to {MAX_NAME_BYTES} printable ASCII characters without ':' \
                 and '/'; for a path there is the form with `file`"
            ));
        }
        Ok(Self(name))
    }
}

impl std::fmt::Display for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Credential {
    /// Where it lies. `directory` is the value of the variable [`DIRECTORY`], as the process was given it.
    ///
    /// Returns why there is no such place.
    pub fn path(&self, directory: Option<&str>) -> Result<PathBuf, String> {
        match directory.map(Path::new) {
            None => Err(format!(
                "cannot be had, because {DIRECTORY} is not set: systemd sets it for a unit that has \
                 LoadCredential={self}:/path/of/the/file"
            )),
            Some(directory) if !directory.is_absolute() => Err(format!(
                "cannot be had, because {DIRECTORY} is no absolute path: {}",
                directory.display()
            )),
            Some(directory) => Ok(directory.join(&self.0)),
        }
    }

    /// What to say when it cannot be read.
    pub fn unreadable(&self, error: &std::io::Error) -> String {
        if error.kind() == std::io::ErrorKind::NotFound {
            return format!(
                "is not among those of this unit; give it one with LoadCredential={self}:/path/of/the/file"
            );
        }
        format!("cannot be read: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Result<Credential, String> {
        Credential::try_from(name.to_owned())
    }

    #[test]
    fn a_name_never_leads_out_of_the_directory() {
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "/etc/shadow",
            "../x",
            "a:b",
            "ä",
            "a\n",
            "\u{7f}",
        ] {
            assert!(named(name).is_err(), "{name:?}");
        }
        assert!(named(&"a".repeat(256)).is_err());
        let credential = named("database-url").unwrap();
        assert_eq!(
            credential.path(Some("/run/credentials/x.service")).unwrap(),
            Path::new("/run/credentials/x.service/database-url")
        );
        assert!(credential.path(Some("relative")).is_err());
        assert!(
            credential
                .path(None)
                .unwrap_err()
                .contains("LoadCredential=database-url:")
        );
    }
}

//! The password file (manual, "The Password File"): lines `host:port:database:user:password`.

use std::path::Path;

use super::secret::Secret;

/// What a password file has to say.
#[derive(Debug)]
pub(crate) enum Passwords {
    /// Its lines.
    Lines(Vec<Vec<String>>),
    /// There is none.
    Absent,
    /// It is there but not to be used; why.
    Unusable(String),
}

impl Passwords {
    /// Reads the file. As in libpq, one that others may read is not used, which is worth saying when a
    /// password is then missing.
    pub(crate) fn read(path: &Path) -> Self {
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::Absent,
            Err(error) => return Self::Unusable(format!("password file {}: {error}", path.display())),
        };
        if !metadata.is_file() {
            return Self::Unusable(format!("password file {} is not a plain file", path.display()));
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = metadata.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                return Self::Unusable(format!(
                    "password file {path} was not used: its permissions are {mode:04o}; run `chmod 600 {path}`",
                    path = path.display()
                ));
            }
        }
        match std::fs::read(path) {
            Ok(bytes) => Self::Lines(String::from_utf8_lossy(&bytes).lines().filter_map(line).collect()),
            Err(error) => Self::Unusable(format!("password file {}: {error}", path.display())),
        }
    }

    /// The first line that fits.
    pub(crate) fn find(&self, host: &str, port: u16, database: &str, user: &str) -> Option<Secret> {
        let Self::Lines(lines) = self else { return None };
        let port = port.to_string();
        let wanted = [host, &port, database, user];
        lines
            .iter()
            .find(|line| {
                line.iter()
                    .zip(wanted)
                    .all(|(field, wanted)| field == "*" || *field == wanted)
            })
            .map(|line| Secret::new(line[4].clone()))
    }
}

/// Five fields; `\:` and `\\` stand for the signs themselves. A wildcard cannot be escaped, as in libpq.
fn line(text: &str) -> Option<Vec<String>> {
    if text.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            // The password runs to the end of the line or to a further colon.
            ':' => break,
            '\\' => fields.last_mut()?.extend(chars.next()),
            _ => fields.last_mut()?.push(c),
        }
    }
    (fields.len() == 5 && !fields[4].is_empty()).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_wildcards_comments_and_order() {
        let text = "# a comment\nshort:line\n::1:5432:db:u:never\n\\:\\:1:5432:db:u:six\n\
                    db\\\\1:*:*:u:back\\:slash\\\\\n*:5433:*:*:any\nh:5432:db:u:later\nh:5432:db:u:last";
        let passwords = Passwords::Lines(text.lines().filter_map(line).collect());
        let find = |host, port| {
            passwords
                .find(host, port, "db", "u")
                .map(|s| s.expose().to_owned())
        };
        assert_eq!(find("::1", 5432).as_deref(), Some("six"));
        assert_eq!(find("db\\1", 1).as_deref(), Some("back:slash\\"));
        assert_eq!(find("x", 5433).as_deref(), Some("any"));
        assert_eq!(find("h", 5432).as_deref(), Some("later"));
        assert_eq!(find("x", 5432), None);
    }
}

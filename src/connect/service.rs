//! Service files (manual, "The Connection Service File"): named groups of connection parameters.

use std::path::{Path, PathBuf};

use super::environment::Environment;

/// Where the distributions keep the system-wide file when `PGSYSCONFDIR` does not say: Debian, then the rest.
const SYSTEM_DIRS: [&str; 2] = ["/etc/postgresql-common", "/etc"];

/// The parameters of a service and the file they stand in.
pub(crate) fn find(
    service: &str,
    file: Option<&str>,
    environment: &Environment,
) -> Result<(PathBuf, Vec<(String, String)>), String> {
    let mut files = Vec::new();
    if let Some(file) = file.filter(|file| !file.is_empty()) {
        if !Path::new(file).exists() {
            return Err(format!("service file {file} does not exist"));
        }
        files.push(PathBuf::from(file));
    } else if let Some(home) = &environment.home {
        files.push(home.join(".pg_service.conf"));
    }
    match environment.get("PGSYSCONFDIR") {
        Some(directory) => files.push(Path::new(directory).join("pg_service.conf")),
        None => files.extend(SYSTEM_DIRS.map(|directory| Path::new(directory).join("pg_service.conf"))),
    }
    for path in &files {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("service file {}: {error}", path.display())),
        };
        if let Some(pairs) = section(&text, service).map_err(|what| format!("{}, {what}", path.display()))? {
            return Ok((path.clone(), pairs));
        }
    }
    let looked: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
    Err(format!(
        "service \"{}\" is not defined in {}",
        service.escape_debug(),
        looked.join(", ")
    ))
}

/// The pairs of one section, if the text has it. Only the first section of a name counts.
fn section(text: &str, service: &str) -> Result<Option<Vec<(String, String)>>, String> {
    let mut found: Option<Vec<(String, String)>> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if name.split(']').next() == Some(service) {
                found = Some(Vec::new());
            }
            continue;
        }
        let Some(pairs) = &mut found else { continue };
        if line.starts_with("ldap:") {
            return Err(format!("line {}: LDAP look-ups are not supported", index + 1));
        }
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| format!("line {}: there is no \"=\"", index + 1))?;
        if name == "service" || name == "servicefile" {
            return Err(format!("line {}: a service cannot name another", index + 1));
        }
        // The first of two equal names counts, as in libpq.
        if !pairs.iter().any(|(known, _)| known == name) {
            pairs.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_comments_and_faults() {
        let text = "# c\n[a]\nhost=x\n\n[b]\n host=y\nport=1\nhost=z\n[b]\nuser=never\n[c]\nbroken\n[d]\nservice=a\n";
        let pairs = section(text, "b").unwrap().unwrap();
        assert_eq!(
            pairs,
            [
                ("host".to_owned(), "y".to_owned()),
                ("port".to_owned(), "1".to_owned())
            ]
        );
        assert!(section(text, "nope").unwrap().is_none());
        assert!(section(text, "c").unwrap_err().contains("line 12"));
        assert!(section(text, "d").is_err());
    }
}

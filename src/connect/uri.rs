//! Connection URIs, as libpq reads them (manual, "Connection URIs"): several hosts, IPv6 in brackets, unix
//! socket directories percent-encoded, parameters after `?`.

/// What follows the scheme, if it is one of ours.
pub(crate) fn strip_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("postgresql://")
        .or_else(|| text.strip_prefix("postgres://"))
}

/// The parameters in their order, from what follows the scheme. The error repeats no part of the text that
/// could belong to a password.
pub(crate) fn parse(rest: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = rest;
    // libpq looks for the first `@` before any `/`, so a password may hold `?` and `#` as they are.
    let stop = rest.find(['@', '/']).unwrap_or(rest.len());
    if rest[stop..].starts_with('@') {
        let (user, password) = split_at(&rest[..stop], ':');
        put(&mut pairs, "user", user)?;
        put(&mut pairs, "password", password.unwrap_or_default())?;
        rest = &rest[stop + 1..];
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    hosts(&mut pairs, &rest[..end])?;
    rest = &rest[end..];
    if let Some(path) = rest.strip_prefix('/') {
        let end = path.find('?').unwrap_or(path.len());
        put(&mut pairs, "dbname", &path[..end])?;
        rest = &path[end..];
    }
    if let Some(query) = rest.strip_prefix('?') {
        parameters(&mut pairs, query)?;
    }
    Ok(pairs)
}

fn hosts(pairs: &mut Vec<(String, String)>, text: &str) -> Result<(), String> {
    if text.contains('@') {
        return Err(
            "the host part of the URI has an \"@\"; write %40 for one in the user or password".into(),
        );
    }
    let mut hosts = Vec::new();
    let mut ports = Vec::new();
    for one in text.split(',') {
        let (host, port) = if let Some(inner) = one.strip_prefix('[') {
            let (host, after) = inner
                .split_once(']')
                .ok_or("an IPv6 address in the URI lacks its closing \"]\"")?;
            if host.is_empty() {
                return Err("the IPv6 address in the URI's brackets is empty".into());
            }
            let port = match after.strip_prefix(':') {
                Some(port) => port,
                None if after.is_empty() => "",
                None => return Err("only a port may follow \"]\" in the URI".into()),
            };
            (host, port)
        } else {
            let (host, port) = split_at(one, ':');
            (host, port.unwrap_or_default())
        };
        hosts.push(decode(host)?);
        ports.push(decode(port)?);
    }
    if hosts.iter().any(|host| !host.is_empty()) {
        pairs.push(("host".into(), hosts.join(",")));
    }
    if ports.iter().any(|port| !port.is_empty()) {
        pairs.push(("port".into(), ports.join(",")));
    }
    Ok(())
}

fn parameters(pairs: &mut Vec<(String, String)>, query: &str) -> Result<(), String> {
    for (index, one) in query.split('&').enumerate() {
        if one.is_empty() && query.is_empty() {
            return Ok(());
        }
        let (name, value) = one
            .split_once('=')
            .ok_or_else(|| format!("the URI's parameter {} has no \"=\" after its name", index + 1))?;
        if value.contains('=') {
            return Err(format!(
                "the URI's parameter {} has two \"=\"; write %3D for the second",
                index + 1
            ));
        }
        let (name, value) = (decode(name)?, decode(value)?);
        // The spelling of JDBC, which libpq takes too.
        if name == "ssl" && value == "true" {
            pairs.push(("sslmode".into(), "require".into()));
        } else {
            pairs.push((name, value));
        }
    }
    Ok(())
}

fn split_at(text: &str, mark: char) -> (&str, Option<&str>) {
    match text.split_once(mark) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// An empty part is an absent one.
fn put(pairs: &mut Vec<(String, String)>, name: &str, encoded: &str) -> Result<(), String> {
    if !encoded.is_empty() {
        pairs.push((name.to_owned(), decode(encoded)?));
    }
    Ok(())
}

/// Percent-decoding without leniency: libpq refuses `%` without two hexadecimal digits, and `%00`.
fn decode(text: &str) -> Result<String, String> {
    const WRONG: &str =
        "a \"%\" in the URI is not followed by two hexadecimal digits; write %25 for the sign itself";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(WRONG.into());
        };
        match u8::try_from(high * 16 + low) {
            Ok(0) => return Err("%00 is not allowed in the URI".into()),
            Ok(value) => bytes.push(value),
            Err(_) => return Err(WRONG.into()),
        }
    }
    String::from_utf8(bytes).map_err(|_| "the URI's percent-encoded bytes are not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(uri: &str) -> Vec<(String, String)> {
        parse(strip_scheme(uri).unwrap()).unwrap()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn the_manuals_examples() {
        assert_eq!(pairs("postgresql://"), []);
        assert_eq!(pairs("postgresql://localhost"), owned(&[("host", "localhost")]));
        assert_eq!(
            pairs("postgresql://localhost:5433"),
            owned(&[("host", "localhost"), ("port", "5433")])
        );
        assert_eq!(
            pairs("postgres://user:secret@localhost/db"),
            owned(&[
                ("user", "user"),
                ("password", "secret"),
                ("host", "localhost"),
                ("dbname", "db")
            ])
        );
        assert_eq!(
            pairs("postgresql://other@host1:123,host2:456/db?target_session_attrs=any"),
            owned(&[
                ("user", "other"),
                ("host", "host1,host2"),
                ("port", "123,456"),
                ("dbname", "db"),
                ("target_session_attrs", "any"),
            ])
        );
        assert_eq!(
            pairs("postgresql:///mydb?host=localhost&port=5433"),
            owned(&[("dbname", "mydb"), ("host", "localhost"), ("port", "5433")])
        );
        assert_eq!(
            pairs("postgresql://[2001:db8::1234]/database"),
            owned(&[("host", "2001:db8::1234"), ("dbname", "database")])
        );
        assert_eq!(
            pairs("postgresql://%2Fvar%2Flib%2Fpostgresql/db?ssl=true"),
            owned(&[
                ("host", "/var/lib/postgresql"),
                ("dbname", "db"),
                ("sslmode", "require")
            ])
        );
        assert_eq!(
            pairs("postgres://u@a,b:2/"),
            owned(&[("user", "u"), ("host", "a,b"), ("port", ",2")])
        );
    }

    #[test]
    fn passwords_keep_their_signs_and_stay_secret() {
        assert_eq!(
            pairs("postgres://u:p?#%40%2f@h")[1],
            ("password".into(), "p?#@/".into())
        );
        for wrong in [
            "postgres://u:hun@ter@h/d",
            "postgres://u:hun%zzter@h",
            "postgres://h/d?password=hun=ter",
        ] {
            let error = parse(strip_scheme(wrong).unwrap()).unwrap_err();
            assert!(!error.contains("hun") && !error.contains("ter@"), "{error}");
        }
        for wrong in [
            "postgres://[::1",
            "postgres://[]",
            "postgres://[::1]x",
            "postgres://h%00",
            "postgres://h?x",
        ] {
            assert!(parse(strip_scheme(wrong).unwrap()).is_err(), "{wrong}");
        }
    }
}

//! What cannot be read in the configuration file, in words that quote no secret.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::file::{NOTHING_DONE, line_at};
use crate::exit::CliError;

/// Keys of a provider whose values are no secrets, so that a message may quote them.
const HARMLESS: [&str; 12] = [
    "absent_is_miss",
    "allow_http",
    "key_limit",
    "key_retention",
    "key_scheme",
    "kind",
    "lag",
    "miss_status",
    "object",
    "replays_errors",
    "test_mode",
    "timeout",
];

/// The line number and the message; never the line itself, nor the value that the reader quotes where it may be a
/// secret: the daemon's log and its `STATUS=` are read by more people than the file.
pub(super) fn error(path: &Path, text: &str, error: &toml::de::Error) -> CliError {
    let line = error.span().map_or(1, |span| line_at(text, span.start));
    let message = error.message().trim_end().replace('\n', ", ");
    let message = match DeTable::parse(text) {
        // What is no TOML is not quoted by its parser.
        Err(_) => message,
        Ok(root) => {
            let mut place = Vec::new();
            let known = error
                .span()
                .is_some_and(|span| find(root.get_ref(), span.start, &mut place));
            match hidden(&message, &place, known) {
                None => message,
                Some(what) => format!("{} {what}", place.join(".")).trim_start().to_owned(),
            }
        }
    };
    CliError::usage(format!("{}, line {line}: {message}", path.display())).hint(NOTHING_DONE)
}

/// The keys that lead to what stands at this offset, the innermost last.
fn find<'a>(table: &'a DeTable<'_>, offset: usize, place: &mut Vec<&'a str>) -> bool {
    for (name, value) in table {
        place.push(name.get_ref());
        // A table has its header's place, and what stands in it lies behind that.
        if let DeValue::Table(inner) = value.get_ref()
            && find(inner, offset, place)
        {
            return true;
        }
        if (name.span().start..value.span().end.max(name.span().end)).contains(&offset) {
            return true;
        }
        place.pop();
    }
    false
}

/// What to say in place of a message that may quote a secret; `None` where it may be shown.
fn hidden(message: &str, place: &[&str], known: bool) -> Option<String> {
    let names_keys = ["unknown field", "missing field", "duplicate "];
    if names_keys.iter().any(|start| message.starts_with(start)) {
        return None;
    }
    let secret = match place {
        _ if !known => true,
        ["providers", _, key] => !HARMLESS.contains(key),
        ["providers", ..] | ["database"] => true,
        ["database", key, ..] => key.starts_with("url"),
        _ => false,
    };
    // Behind whatever was quoted stands the program's own text.
    let own = |mark: &str| message.rsplit_once(mark).map(|(_, own)| own);
    secret.then(|| match (own(", expected "), own("\" is ")) {
        (Some(expected), _) => format!("is not what can stand here: {expected} is expected"),
        (None, Some(problem)) => format!("is {problem}"),
        (None, None) => "is not what can stand here".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn no_value_that_may_be_a_secret_is_quoted() {
        let provider = "[providers.acme]\nkind = \"http\"\n";
        for (text, key, line) in [
            ("headers = \"Bearer sk_live\"", "providers.acme.headers", 3),
            ("headers = { A = [\"sk_live\"] }", "providers.acme.headers", 3),
            ("secret = [\"sk_live\"]", "providers.acme.secret", 3),
            ("secret = { file = [\"sk_live\"] }", "providers.acme.secret", 3),
            (
                "secret = { credential = \"sk_live/..\" }",
                "providers.acme.secret",
                3,
            ),
            ("url = { a = \"sk_live\" }", "providers.acme.url", 3),
            ("response = \"sk_live, expected x\"", "providers.acme.response", 3),
            ("verdicts = \"sk_live\"", "providers.acme.verdicts", 3),
            ("[providers]\nacme = \"sk_live\"", "providers.acme", 2),
            ("providers = \"sk_live\"", "providers", 1),
            ("providers = [\"sk_live\"]", "providers", 1),
            ("database = \"postgres://u:sk_live@h/d\"", "database", 1),
            ("[database]\nurl = [\"sk_live\"]", "database.url", 2),
            ("[database]\nurl_file = [\"sk_live\"]", "database.url_file", 2),
            (
                "[database]\nurl_credential = \"sk_live/..\"",
                "database.url_credential",
                2,
            ),
        ] {
            let text = if line == 3 {
                format!("{provider}{text}\n")
            } else {
                format!("{text}\n")
            };
            let cause = toml::from_str::<Config>(&text).unwrap_err();
            let said = error(Path::new("c.toml"), &text, &cause);
            let message = said.message();
            assert!(!message.contains("sk_live"), "{text}: {message}");
            assert!(
                message.contains(&format!("line {line}: {key}")),
                "{text}: {message}"
            );
        }
        // What is harmless is quoted, and keys are named.
        for (text, word) in [
            ("timeout = \"5 parsecs\"", "parsecs"),
            ("kind = \"paypal\"", "paypal"),
            ("seccret = \"sk_live\"", "seccret"),
        ] {
            let head = if text.starts_with("kind") {
                "[providers.acme]\n"
            } else {
                provider
            };
            let text = format!("{head}{text}\n");
            let cause = toml::from_str::<Config>(&text).unwrap_err();
            let said = error(Path::new("c.toml"), &text, &cause);
            assert!(said.message().contains(word), "{}", said.message());
            assert!(!said.message().contains("sk_live"), "{}", said.message());
        }
    }
}

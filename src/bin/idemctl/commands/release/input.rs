//! Keys from stdin.

use std::collections::HashSet;
use std::io::{BufRead, Read};

use idemctl::key::KeyId;

use crate::exit::{CliError, Result};

/// Longest line of client TAB key: 255 characters each, of at most 4 bytes.
const MAX_LINE_BYTES: u64 = 4 * 1024;

/// Most keys of one input: each is read, and may be asked about, before the first is changed.
const MAX_IDS: usize = 100_000;

/// Lines of client TAB key. The whole input is checked before anything is changed.
pub(super) fn ids_from(mut input: impl BufRead) -> Result<Vec<KeyId>> {
    let (mut ids, mut known) = (Vec::new(), HashSet::new());
    for number in 1.. {
        let at = |what: &str| CliError::usage(format!("stdin, line {number}: {what}; nothing was changed"));
        let mut line = String::new();
        let read = input
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_line(&mut line)
            .map_err(|error| at(&format!("couldn't be read: {error}")))?;
        if read == 0 {
            break;
        }
        if read as u64 == MAX_LINE_BYTES {
            return Err(at("is longer than any client and key"));
        }
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            continue;
        }
        let Some((client, key)) = line.split_once('\t') else {
            return Err(at("no tab between client and key")
                .hint("`idemctl list -o ids` prints the form that is read here"));
        };
        let id = KeyId::new(client, key).map_err(|error| at(&error.to_string()))?;
        if known.insert(id.clone()) {
            if ids.len() == MAX_IDS {
                return Err(at(&format!("more than {MAX_IDS} keys at once"))
                    .hint("give them in several runs, or use --expired with its filters"));
            }
            ids.push(id);
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn input_is_checked_as_a_whole() {
        assert_eq!(ids_from(&b"a\tb\n\na\tb\nc\td\n"[..]).unwrap().len(), 2);
        let error = ids_from(&b"a\tb\nnonsense\n"[..]).unwrap_err();
        assert!(error.message().contains("line 2"), "{}", error.message());
        assert_eq!(error.exit(), Exit::Usage);
        let lines = |count: usize| {
            let lines: Vec<String> = (0..count).map(|i| format!("c\t{i}\n")).collect();
            lines.concat().into_bytes()
        };
        assert_eq!(ids_from(&lines(MAX_IDS)[..]).unwrap().len(), MAX_IDS);
        let error = ids_from(&lines(MAX_IDS + 1)[..]).unwrap_err();
        assert_eq!(error.exit(), Exit::Usage);
        assert!(
            error.message().contains("more than 100000"),
            "{}",
            error.message()
        );
        let endless = vec![b'x'; 10_000];
        assert!(
            ids_from(&endless[..])
                .unwrap_err()
                .message()
                .contains("longer than any")
        );
    }
}

//! `idemctl fingerprint`: the digest of a request, and whether a stored key was claimed with it.

use std::io::{IsTerminal, Read};
use std::path::Path;

use idemctl::error::Error;
use idemctl::fingerprint::{self, Fields, MAX_BYTES};
use idemctl::key::KeyId;
use idemctl::ops::compare::{self, Form};

use super::inspect::not_found;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::fingerprint::{FingerprintView, StoredView};

/// The fingerprint of a request body, and whether it is the one that a key was claimed with
#[derive(Debug, clap::Args)]
pub(crate) struct FingerprintArgs {
    /// The body; - or nothing reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: std::path::PathBuf,
    /// Only these fields, as the service selects them: JSON Pointers such as /amount,/currency (repeatable)
    #[arg(long, value_name = "POINTERS", conflicts_with = "bytes")]
    fields: Vec<String>,
    /// The body is no JSON: take its bytes as they are
    #[arg(long)]
    bytes: bool,
    /// Show the canonical text that is hashed
    #[arg(long, conflicts_with = "bytes")]
    explain: bool,
    /// Compare with a stored key; exit 0 when it is the same request, 4 when a repeat would be refused
    #[arg(long, num_args = 2, value_names = ["CLIENT", "KEY"], allow_hyphen_values = true)]
    compare: Option<Vec<String>>,
}

pub(crate) async fn run(context: &Context, args: FingerprintArgs) -> Result<Exit> {
    let id = match args.compare.as_deref() {
        Some([client, key]) => Some(KeyId::new(client, key)?),
        _ => None,
    };
    let fields = match pointers(&args.fields) {
        pointers if pointers.is_empty() => None,
        pointers => Some(Fields::new(pointers)?),
    };
    let form = match (args.bytes, &fields) {
        (true, _) => Form::Bytes,
        (false, Some(_)) => Form::Fields,
        (false, None) => Form::Body,
    };
    // In a thread of its own, so that a signal ends the wait for input that never comes.
    let file = args.file.clone();
    let body = tokio::task::spawn_blocking(move || read(&file, form))
        .await
        .map_err(|error| CliError::new(Exit::Other, format!("couldn't read the body: {error}")))??;
    let wrong = |error| in_body(error, &args.file, form);
    let ours = form.fingerprint(&body, fields.as_ref()).map_err(wrong)?;
    let canonical = match (args.explain, &fields) {
        (false, _) => None,
        (true, None) => Some(fingerprint::canonical(&body).map_err(wrong)?),
        (true, Some(fields)) => Some(fingerprint::canonical_fields(&body, fields).map_err(wrong)?),
    };
    let stored = match &id {
        None => None,
        Some(id) => {
            let (connection, store) = context.open().await?;
            let found = compare::run(&connection, &store, id, &body, (form, fields.as_ref())).await?;
            Some(found.ok_or_else(|| not_found(id, None))?)
        }
    };
    let stored = stored.map(|found| StoredView::new(found, &context.settings.config.output.mask));
    let view = FingerprintView::new(&ours, form, canonical, stored);
    context.printer.document(&view)?;
    verdict(&view, form)
}

/// A difference is what the service would answer 422 to: refused.
fn verdict(view: &FingerprintView, form: Form) -> Result<Exit> {
    let Some(stored) = &view.compared else {
        return Ok(Exit::Done);
    };
    if stored.same {
        return Ok(Exit::Done);
    }
    let error = CliError::new(
        Exit::Refused,
        "the digests differ: this is not the request that the key was claimed with",
    );
    Err(match form {
        Form::Fields => error.hint(
            "which field differs cannot be told: the table keeps the digest alone. If the service selects other \
             fields, give those",
        ),
        Form::Body | Form::Bytes => error.hint(
            "which member differs cannot be told: the table keeps the digest alone. If the service selects fields, \
             give the same with --fields",
        ),
    })
}

/// `--fields /a,/b --fields /c`: a comma before a slash divides, any other belongs to a name.
fn pointers(given: &[String]) -> Vec<String> {
    let mut pointers = Vec::new();
    for text in given {
        let mut rest = text.as_str();
        while let Some(at) = rest.find(",/") {
            pointers.push(rest[..at].to_owned());
            rest = &rest[at + 1..];
        }
        pointers.push(rest.to_owned());
    }
    pointers
}

/// Reads the body; JSON only up to the limit, so that an endless input ends.
fn read(path: &Path, form: Form) -> Result<Vec<u8>> {
    let most = match form {
        Form::Bytes => u64::MAX,
        // One byte more, so that the reader of JSON says what the limit is.
        Form::Body | Form::Fields => MAX_BYTES as u64 + 1,
    };
    let failed = |error: std::io::Error| {
        CliError::usage(format!("couldn't read {}: {error}", shown(path)))
            .hint("give a file, or pipe the body in")
    };
    let mut body = Vec::new();
    if path.as_os_str() == "-" {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            return Err(CliError::usage("there is no body: standard input is a terminal")
                .hint("give a file, or pipe the body in"));
        }
        stdin.lock().take(most).read_to_end(&mut body).map_err(failed)?;
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(most).read_to_end(&mut body).map_err(failed)?;
    }
    Ok(body)
}

fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Says in which file the error is.
fn in_body(error: Error, path: &Path, form: Form) -> CliError {
    let error = CliError::from(error).context(&shown(path));
    match form {
        Form::Body => error.hint("for a body that is no JSON use --bytes"),
        Form::Fields | Form::Bytes => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_divides_pointers_and_nothing_else() {
        let given = ["/a,/b/c".to_owned(), "/d,e".to_owned()];
        assert_eq!(pointers(&given), ["/a", "/b/c", "/d,e"]);
    }
}

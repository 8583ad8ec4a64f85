//! Whether a column can be one of ours, and by which conversion.

use std::time::Duration;

use super::column::{ColumnFit, Fit};
use super::names::Chosen;
use super::remark::Remedy;
use crate::store::adopt::{Column, Value};

/// A judgement, and the value that it leads to.
pub(super) type Judged = (ColumnFit, Option<(&'static str, Value)>);

/// What was said about the table besides its columns.
#[derive(Debug)]
pub(super) struct Said<'a> {
    pub(super) client_constant: Option<&'a str>,
    pub(super) lease: Duration,
    pub(super) time_zone: &'a str,
}

fn judged(
    ours: &'static str,
    column: Option<&Column>,
    fit: Fit,
    how: impl Into<String>,
    value: Value,
) -> Judged {
    let column_fit = ColumnFit {
        ours,
        theirs: column.map(|column| column.name.clone()),
        kind: column.map(|column| column.shown.clone()),
        fit,
        how: how.into(),
    };
    (column_fit, (fit != Fit::Cannot).then_some((ours, value)))
}

fn cannot(ours: &'static str, column: Option<&Column>, why: impl Into<String>) -> Judged {
    judged(ours, column, Fit::Cannot, why, Value::Null)
}

/// What would help one that cannot be.
pub(super) fn remedy(column: &ColumnFit) -> Option<Remedy> {
    match (column.ours, &column.theirs) {
        ("client_id", None) => Some(Remedy::NameClient),
        (ours, None) => Some(Remedy::Name(ours)),
        (
            "attempt" | "owner" | "operation" | "provider" | "order_id" | "last_error" | "response_headers",
            theirs,
        ) => Some(Remedy::LeaveOut(theirs.clone())),
        _ => None,
    }
}

/// Every column of ours but the status, in our order.
pub(super) fn judge(chosen: &Chosen<'_>, said: &Said<'_>) -> Vec<Judged> {
    let mut all = vec![
        client(chosen, said),
        key(chosen),
        fingerprint(chosen),
        locked_until(chosen, said),
    ];
    all.push(status_code(chosen));
    all.push(response(chosen));
    all.push(created_at(chosen, said));
    all.extend(
        chosen
            .column("completed_at")
            .map(|column| time("completed_at", column, said)),
    );
    all.extend(chosen.column("attempt").map(attempt));
    for ours in ["owner", "operation", "provider", "order_id", "last_error"] {
        all.extend(chosen.column(ours).map(|column| text(ours, column)));
    }
    all.extend(chosen.column("response_headers").map(headers));
    all
}

fn client(chosen: &Chosen<'_>, said: &Said<'_>) -> Judged {
    let ours = "client_id";
    match (said.client_constant, chosen.column(ours)) {
        (Some(name), _) => judged(
            ours,
            None,
            Fit::Missing,
            format!("{name} for every row"),
            Value::Constant(name.to_owned()),
        ),
        (None, Some(column)) => text(ours, column),
        (None, None) => cannot(ours, None, "no column says who sent a key"),
    }
}

fn key(chosen: &Chosen<'_>) -> Judged {
    match chosen.column("key") {
        Some(column) => text("key", column),
        None => cannot("key", None, "no column looks like the client's key"),
    }
}

/// Types whose text says all, and where no two equal values have two texts.
fn text(ours: &'static str, column: &Column) -> Judged {
    let name = column.name.clone();
    match column.base.as_str() {
        "text" | "character varying" | "character" if column.blurred => cannot(
            ours,
            Some(column),
            "its collation takes different texts for one key, and text would take them for two: a repeat would be charged \
             again",
        ),
        "text" | "character varying" => judged(ours, Some(column), Fit::Fits, "as it is", Value::As(name)),
        "uuid" | "bigint" | "integer" | "smallint" => judged(
            ours,
            Some(column),
            Fit::Converts,
            format!("the text of the {}", column.base),
            Value::Text(name),
        ),
        "character" => judged(
            ours,
            Some(column),
            Fit::Converts,
            "without the blanks that pad it",
            Value::Text(name),
        ),
        _ if !column.labels.is_empty() => judged(
            ours,
            Some(column),
            Fit::Converts,
            "the word of the enum",
            Value::Text(name),
        ),
        "citext" => cannot(
            ours,
            Some(column),
            "it takes A and a for one key, and text would take them for two: a repeat would be charged again",
        ),
        other => cannot(
            ours,
            Some(column),
            format!(
                "one value of {other} may have several texts, so two requests for one key would not meet"
            ),
        ),
    }
}

fn fingerprint(chosen: &Chosen<'_>) -> Judged {
    let ours = "fingerprint";
    let Some(column) = chosen.column(ours) else {
        return judged(
            ours,
            None,
            Fit::Missing,
            "64 zeros, which no request has: a repeat of an old key is a mismatch (422), unless the service allows it \
             (`or_any_of` 64 zeros)",
            Value::Constant("0".repeat(64)),
        );
    };
    let name = column.name.clone();
    match column.base.as_str() {
        "bytea" => judged(
            ours,
            Some(column),
            Fit::Converts,
            "32 bytes as hex, others as the SHA-256 of them",
            Value::FingerprintBytes(name),
        ),
        "json" | "jsonb" => judged(
            ours,
            Some(column),
            Fit::Converts,
            "the SHA-256 of the text as PostgreSQL prints it, which is no fingerprint of ours: a repeat of an old key is a \
             mismatch (422), unless the service passes that digest by `or_any_of`",
            Value::Fingerprint(name),
        ),
        _ => judged(
            ours,
            Some(column),
            Fit::Converts,
            "64 hex digits as they are (lower case), anything else as the SHA-256 of its text; if it was not made by our \
             rule, the service passes its own by `or_any_of`, else a repeat of an old key is a mismatch (422)",
            Value::Fingerprint(name),
        ),
    }
}

/// The value of a time, for expressions around it.
fn instant(column: &Column, said: &Said<'_>) -> Option<(Fit, String, Value)> {
    let name = column.name.clone();
    match column.base.as_str() {
        "timestamp with time zone" => Some((Fit::Fits, "as it is".to_owned(), Value::As(name))),
        "timestamp without time zone" => Some((
            Fit::Converts,
            format!("read as a time in {}", said.time_zone),
            Value::In(name, said.time_zone.to_owned()),
        )),
        _ => None,
    }
}

fn time(ours: &'static str, column: &Column, said: &Said<'_>) -> Judged {
    match instant(column, said) {
        Some((fit, how, value)) => judged(ours, Some(column), fit, how, value),
        None => cannot(ours, Some(column), format!("{} is no time", column.shown)),
    }
}

fn created_at(chosen: &Chosen<'_>, said: &Said<'_>) -> Judged {
    match chosen.column("created_at") {
        Some(column) => time("created_at", column, said),
        None => judged(
            "created_at",
            None,
            Fit::Missing,
            "the time of the copy: every row's retention begins then",
            Value::Now,
        ),
    }
}

fn locked_until(chosen: &Chosen<'_>, said: &Said<'_>) -> Judged {
    let ours = "locked_until";
    let created = chosen
        .column("created_at")
        .and_then(|column| instant(column, said))
        .map_or(Value::Now, |(_, _, value)| value);
    let or_created = |value| Value::Either(Box::new(value), Box::new(created));
    let seconds = said.lease.as_secs_f64();
    if let Some(column) = chosen.column(ours) {
        return match instant(column, said) {
            Some((fit, how, value)) if column.not_null => judged(ours, Some(column), fit, how, value),
            Some((_, how, value)) => judged(
                ours,
                Some(column),
                Fit::Converts,
                format!("{how}; where it is null, {seconds} s after the copy"),
                Value::Either(
                    Box::new(value),
                    Box::new(Value::Later(Box::new(Value::Now), seconds)),
                ),
            ),
            None => cannot(ours, Some(column), format!("{} is no time", column.shown)),
        };
    }
    if let Some(column) = chosen.column("locked_at") {
        return match instant(column, said) {
            Some((_, _, value)) => judged(
                ours,
                Some(column),
                Fit::Converts,
                format!("{seconds} s later; where it is null nobody holds the key"),
                or_created(Value::Later(Box::new(value), seconds)),
            ),
            None => cannot(ours, Some(column), format!("{} is no time", column.shown)),
        };
    }
    judged(
        ours,
        None,
        Fit::Missing,
        format!("{seconds} s after the copy"),
        Value::Later(Box::new(Value::Now), seconds),
    )
}

fn status_code(chosen: &Chosen<'_>) -> Judged {
    let ours = "status_code";
    let Some(column) = chosen.column(ours) else {
        return judged(
            ours,
            None,
            Fit::Missing,
            "none: replayed as 200, a failed one as 500",
            Value::Null,
        );
    };
    let name = column.name.clone();
    match column.base.as_str() {
        "integer" | "smallint" => judged(ours, Some(column), Fit::Fits, "as it is", Value::As(name)),
        "bigint" | "numeric" | "text" | "character varying" => judged(
            ours,
            Some(column),
            Fit::Converts,
            "as a number; the copy stops at one that is none",
            Value::Number(name),
        ),
        other => cannot(ours, Some(column), format!("{other} is no number")),
    }
}

fn response(chosen: &Chosen<'_>) -> Judged {
    let Some(column) = chosen.column("response") else {
        return judged(
            "response",
            None,
            Fit::Missing,
            "none: replayed without a body",
            Value::Null,
        );
    };
    let name = column.name.clone();
    match column.base.as_str() {
        "json" => judged("response", Some(column), Fit::Fits, "as it is", Value::As(name)),
        "jsonb" => judged(
            "response",
            Some(column),
            Fit::Converts,
            "the text as PostgreSQL prints it (the bytes that were sent at first are not in a jsonb)",
            Value::Json(name),
        ),
        "text" | "character varying" => judged(
            "response_body",
            Some(column),
            Fit::Converts,
            "the bytes of the text, in UTF-8",
            Value::Bytes(name),
        ),
        "bytea" => judged(
            "response_body",
            Some(column),
            Fit::Fits,
            "as it is",
            Value::As(name),
        ),
        other => cannot(
            "response",
            Some(column),
            format!("{other} is neither JSON nor text nor bytes"),
        ),
    }
}

fn attempt(column: &Column) -> Judged {
    match column.base.as_str() {
        "integer" if column.not_null => judged(
            "attempt",
            Some(column),
            Fit::Fits,
            "as it is",
            Value::As(column.name.clone()),
        ),
        _ => cannot(
            "attempt",
            Some(column),
            format!("{} that may be null is no count", column.shown),
        ),
    }
}

fn headers(column: &Column) -> Judged {
    match column.base.as_str() {
        "jsonb" => judged(
            "response_headers",
            Some(column),
            Fit::Fits,
            "as it is: an object of strings or an array of [name, value]",
            Value::As(column.name.clone()),
        ),
        other => cannot("response_headers", Some(column), format!("{other} is no jsonb")),
    }
}

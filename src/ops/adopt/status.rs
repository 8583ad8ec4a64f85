//! What their words for a state mean.

use serde::Serialize;

use super::column::{ColumnFit, Fit};
use super::names::Chosen;
use super::remark::{Remark, Remedy};
use crate::error::{Error, Result};
use crate::store::adopt::{Column, Filled, StatusWord, Value, Word};

/// Words that can mean but one thing.
const KNOWN: [(&str, &[&str]); 3] = [
    (
        "in_progress",
        &[
            "in_progress",
            "in progress",
            "inprogress",
            "in-progress",
            "started",
            "processing",
            "pending",
            "running",
            "locked",
        ],
    ),
    (
        "done",
        &[
            "done",
            "finished",
            "completed",
            "complete",
            "succeeded",
            "success",
            "processed",
        ],
    ),
    ("failed", &["failed"]),
];

/// One of their words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WordFit {
    /// Theirs; `None` for null.
    pub theirs: Option<String>,
    /// Rows that have it, among those that were looked at.
    pub rows: i64,
    /// Ours; `None`: nobody has said what it means.
    pub ours: Option<&'static str>,
}

/// The rule that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) column: ColumnFit,
    pub(super) value: Option<Value>,
    pub(super) words: Vec<WordFit>,
    pub(super) problems: Vec<Remark>,
}

/// The states that somebody may name.
fn ours(word: &str) -> Option<&'static str> {
    KNOWN.iter().map(|(ours, _)| *ours).find(|ours| *ours == word)
}

/// Checks what was said: `theirs`, `ours`.
pub(super) fn check(said: &[(String, String)]) -> Result<()> {
    let invalid = |reason| {
        Err(Error::Invalid {
            field: "status",
            reason,
        })
    };
    for (theirs, word) in said {
        if ours(word).is_none() {
            return invalid(format!("{theirs}={word}: there are in_progress, done and failed"));
        }
        if said.iter().any(|(other, meant)| other == theirs && meant != word) {
            return invalid(format!("{theirs}: two meanings are given"));
        }
    }
    Ok(())
}

fn meaning(word: &str, said: &[(String, String)]) -> Option<&'static str> {
    if let Some((_, named)) = said.iter().find(|(theirs, _)| theirs == word) {
        return ours(named);
    }
    let lower = word.to_lowercase();
    let known = KNOWN.iter().find(|(_, words)| words.contains(&lower.as_str()));
    known.map(|(ours, _)| *ours)
}

/// `found`: the words in the rows.
pub(super) fn judge(chosen: &Chosen<'_>, found: &[Word], said: &[(String, String)]) -> Found {
    let Some(column) = chosen.column("status") else {
        return without_column(chosen);
    };
    let mut all: Vec<(Option<String>, i64)> =
        found.iter().map(|word| (word.word.clone(), word.rows)).collect();
    let not_met = column.labels.iter().chain(said.iter().map(|(theirs, _)| theirs));
    for label in not_met {
        if !all.iter().any(|(word, _)| word.as_ref() == Some(label)) {
            all.push((Some(label.clone()), 0));
        }
    }
    let mut problems = Vec::new();
    let mut words = Vec::new();
    for (theirs, rows) in all {
        let ours = theirs.as_deref().and_then(|word| meaning(word, said));
        match (&theirs, ours) {
            (Some(word), None) => problems.push(Remark::with(
                format!(
                    "the word {word:?} in {} ({rows} rows) may mean anything",
                    column.name
                ),
                Remedy::Explain(word.clone()),
            )),
            (None, _) => problems.push(Remark::new(format!(
                "{rows} rows have no {}: nobody knows whether they are finished",
                column.name
            ))),
            _ => {}
        }
        words.push(WordFit { theirs, rows, ours });
    }
    let rules: Vec<StatusWord> = words
        .iter()
        .filter_map(|word| {
            Some(StatusWord {
                theirs: word.theirs.clone()?,
                ours: word.ours?,
            })
        })
        .collect();
    let same = rules.iter().all(|rule| rule.theirs == rule.ours) && column.base == "text";
    let fit = if !problems.is_empty() {
        Fit::Cannot
    } else if same {
        Fit::Fits
    } else {
        Fit::Converts
    };
    Found {
        column: ColumnFit {
            ours: "status",
            theirs: Some(column.name.clone()),
            kind: Some(column.shown.clone()),
            fit,
            how: "word by word; the copy stops at a word that is not listed".to_owned(),
        },
        value: problems
            .is_empty()
            .then(|| Value::Status(column.name.clone(), rules, known(column))),
        words,
        problems,
    }
}

/// Words that no row may have had when we looked: nothing was in progress then, say. A number or a truth value is none of
/// them.
fn known(column: &Column) -> Vec<StatusWord> {
    if !matches!(column.base.as_str(), "text" | "character varying" | "character") {
        return Vec::new();
    }
    let each = |(ours, words): &(&'static str, &[&str])| {
        let word = |theirs: &&str| StatusWord {
            theirs: (*theirs).to_owned(),
            ours,
        };
        words.iter().map(word).collect::<Vec<_>>()
    };
    KNOWN.iter().flat_map(each).collect()
}

/// Whoever has stored an answer is done; but a column that always has a value is no sign of one.
fn without_column(chosen: &Chosen<'_>) -> Found {
    let signs: Vec<String> = ["completed_at", "status_code", "response"]
        .iter()
        .filter_map(|target| chosen.column(target))
        .filter(|column| !column.not_null && column.filled == Filled::Null)
        .map(|column| column.name.clone())
        .collect();
    let column = |fit, how| ColumnFit {
        ours: "status",
        theirs: None,
        kind: None,
        fit,
        how,
    };
    if signs.is_empty() {
        let why = "no column says whether a request is finished, and no time of an end, status code or response can be absent \
                   (what is not null or has a default is no sign of an end)";
        return Found {
            column: column(Fit::Cannot, why.to_owned()),
            value: None,
            words: Vec::new(),
            problems: vec![Remark::with(format!("status: {why}"), Remedy::Name("status"))],
        };
    }
    Found {
        column: column(
            Fit::Missing,
            match signs.as_slice() {
                [first, weaker @ ..] if !weaker.is_empty() => format!(
                    "done where there is a {first}, in progress where there is no {} either; the copy stops where they \
                     contradict each other",
                    weaker.join(" and no ")
                ),
                _ => format!("done where there is a {}, else in progress", signs.join("")),
            },
        ),
        value: Some(Value::DoneWhere(signs)),
        words: Vec::new(),
        problems: Vec::new(),
    }
}

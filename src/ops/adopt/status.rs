//! What their words for a state mean.

use serde::Serialize;

use super::column::{ColumnFit, Fit};
use super::names::Chosen;
use crate::error::{Error, Result};
use crate::store::adopt::{StatusWord, Value, Word};

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
    pub(super) problems: Vec<String>,
}

/// The states that somebody may name.
fn ours(word: &str) -> Option<&'static str> {
    KNOWN.iter().map(|(ours, _)| *ours).find(|ours| *ours == word)
}

/// Checks what was said: `theirs`, `ours`.
pub(super) fn check(said: &[(String, String)]) -> Result<()> {
    match said.iter().find(|(_, word)| ours(word).is_none()) {
        None => Ok(()),
        Some((theirs, word)) => Err(Error::Invalid {
            field: "status",
            reason: format!("{theirs}={word}: there are in_progress, done and failed"),
        }),
    }
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
            (Some(word), None) => problems.push(format!(
                "the word {word:?} in {} ({rows} rows) may mean anything; say what it means: --status \
                 '{word}=in_progress' (or done, failed)",
                column.name
            )),
            (None, _) => problems.push(format!(
                "{rows} rows have no {}: nobody knows whether they are finished",
                column.name
            )),
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
            .then(|| Value::Status(column.name.clone(), rules)),
        words,
        problems,
    }
}

/// Whoever has stored an answer is done.
fn without_column(chosen: &Chosen<'_>) -> Found {
    let signs: Vec<String> = ["completed_at", "status_code", "response"]
        .iter()
        .filter_map(|target| chosen.column(target).map(|column| column.name.clone()))
        .collect();
    let column = |fit, how| ColumnFit {
        ours: "status",
        theirs: None,
        kind: None,
        fit,
        how,
    };
    if signs.is_empty() {
        let why = "no column says whether a request is finished, and there is no response either; give --map COLUMN=status";
        return Found {
            column: column(Fit::Cannot, why.to_owned()),
            value: None,
            words: Vec::new(),
            problems: vec![format!("status: {why}")],
        };
    }
    Found {
        column: column(
            Fit::Missing,
            format!("done where there is a {}, else in progress", signs.join(" or a ")),
        ),
        value: Some(Value::DoneWhereAny(signs)),
        words: Vec::new(),
        problems: Vec::new(),
    }
}

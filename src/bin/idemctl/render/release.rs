//! What became of the keys that were to be released.

use std::io::{self, Write};

use idemctl::key::KeyId;
use idemctl::ops::release::Outcome;
use serde::Serialize;

use super::{Document, printable};
use crate::exit::{CliError, Exit};

/// `release -o json` of the contract.
#[derive(Debug, Serialize)]
pub(crate) struct ReleaseView {
    pub(crate) released: Vec<ReleasedView>,
    /// What is wrong with expired rows that hold something unreadable; they were left alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreadable: Vec<String>,
    pub(crate) dry_run: bool,
}

/// One key.
#[derive(Debug, Serialize)]
pub(crate) struct ReleasedView {
    client_id: String,
    key: String,
    result: &'static str,
    reason: Option<String>,
    #[serde(skip)]
    exit: Exit,
    #[serde(skip)]
    hint: Option<String>,
}

impl ReleasedView {
    pub(crate) fn not_found(id: &KeyId) -> Self {
        Self::new(
            id,
            "not_found",
            Exit::NotFound,
            Some("no such key: never used, released, or purged".to_owned()),
        )
    }

    pub(crate) fn refused(id: &KeyId, reason: impl Into<String>) -> Self {
        Self::new(id, "refused", Exit::Refused, Some(reason.into()))
    }

    /// Left alone because something is not any more as it was when this was decided.
    pub(crate) fn changed(id: &KeyId, reason: impl Into<String>) -> Self {
        Self::new(id, "changed", Exit::Race, Some(reason.into()))
    }

    /// Left alone because of an error, which is told.
    pub(crate) fn error(id: &KeyId, error: &CliError) -> Self {
        let item = Self::new(id, "error", error.exit(), Some(error.message().to_owned()));
        let hint = error.hint_text().map(str::to_owned);
        Self { hint, ..item }
    }

    pub(crate) fn of(id: &KeyId, outcome: Outcome) -> Self {
        match outcome {
            Outcome::Released => Self::new(id, "released", Exit::Done, None),
            Outcome::Failed => Self::new(id, "failed", Exit::Done, None),
            Outcome::RefusedLive => Self::refused(
                id,
                "the lease is alive: its holder may be at work; wait until it is over (`idemctl inspect --watch` shows when)",
            ),
            Outcome::RefusedFinal => Self::refused(
                id,
                "the row holds a final answer, which repeats get; the purge deletes it after its time",
            ),
            Outcome::RefusedUnknown => {
                Self::refused(id, "the column status holds a word that idemctl does not know")
            }
            Outcome::Changed => {
                let reason =
                    "the row changed since it was read (taken over, completed, released); look again";
                Self::changed(id, reason)
            }
            Outcome::Unknown => {
                let reason = "the commit was not answered: changed or not, `idemctl inspect` tells";
                Self::new(id, "unknown", Exit::Database, Some(reason.to_owned()))
            }
        }
    }

    fn new(id: &KeyId, result: &'static str, exit: Exit, reason: Option<String>) -> Self {
        Self {
            client_id: id.client_id().to_owned(),
            key: id.key().to_owned(),
            result,
            reason,
            exit,
            hint: None,
        }
    }
}

impl ReleaseView {
    /// One key: its own code. Several: 0, or 6 as soon as one of them failed.
    fn exit(&self, bulk: bool) -> Exit {
        let worst = self
            .released
            .iter()
            .map(|item| item.exit)
            .find(|exit| *exit != Exit::Done);
        match worst {
            None if !self.unreadable.is_empty() => Exit::Partial,
            None => Exit::Done,
            Some(_) if bulk => Exit::Partial,
            Some(exit) => exit,
        }
    }

    /// What stderr says about a code that is not 0.
    pub(crate) fn complaint(&self, bulk: bool) -> Option<CliError> {
        let error = CliError::new(self.exit(bulk), self.complaint_text()?);
        let hint = self.released.iter().find_map(|item| item.hint.as_deref());
        let unreadable = (!self.unreadable.is_empty()).then_some("psql shows unreadable rows and mends them");
        Some(match hint.or(unreadable) {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }

    fn complaint_text(&self) -> Option<String> {
        let bad: Vec<_> = self
            .released
            .iter()
            .filter(|item| item.exit != Exit::Done)
            .collect();
        match bad.as_slice() {
            [] => self
                .unreadable
                .first()
                .map(|problem| format!("{} row(s) could not be read: {problem}", self.unreadable.len())),
            [one] => Some(format!(
                "{} {}: {}: {}",
                one.client_id,
                one.key,
                one.result,
                one.reason.as_deref().unwrap_or("no reason known")
            )),
            many => Some(format!(
                "{} of {} keys did not end as asked; each is listed with what is known of it",
                many.len(),
                self.released.len()
            )),
        }
    }
}

impl Document for ReleaseView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |name: fn(&ReleasedView) -> &str| {
            let names = self
                .released
                .iter()
                .map(|item| printable(name(item)).chars().count());
            names.max().unwrap_or(0)
        };
        let (clients, keys) = (width(|item| &item.client_id), width(|item| &item.key));
        for item in &self.released {
            let verb = match (item.result, self.dry_run) {
                ("released", true) => "would be released",
                ("failed", true) => "would be kept as failed",
                ("failed", false) => "kept as failed",
                (other, _) => other,
            };
            let reason = item
                .reason
                .as_deref()
                .map(|reason| format!(" ({reason})"))
                .unwrap_or_default();
            writeln!(
                out,
                "{:clients$} {:keys$}  {verb}{}",
                printable(&item.client_id),
                printable(&item.key),
                printable(&reason)
            )?;
        }
        for problem in &self.unreadable {
            writeln!(out, "unreadable: {}", printable(problem))?;
        }
        Ok(())
    }

    /// Those that were released, or would be.
    fn ids(&self) -> Option<Vec<(&str, &str)>> {
        let done = self.released.iter().filter(|item| item.exit == Exit::Done);
        Some(
            done.map(|item| (item.client_id.as_str(), item.key.as_str()))
                .collect(),
        )
    }

    fn csv(&self) -> Option<Vec<Vec<String>>> {
        let head = ["client_id", "key", "result", "reason"]
            .map(str::to_owned)
            .to_vec();
        let rows = self.released.iter().map(|item| {
            let reason = item.reason.clone().unwrap_or_default();
            vec![
                item.client_id.clone(),
                item.key.clone(),
                item.result.to_owned(),
                reason,
            ]
        });
        Some(std::iter::once(head).chain(rows).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose text is no UTF-8 behind a pooler that lost the encoding: nothing that a test can store.
    #[test]
    fn what_cannot_be_read_is_in_the_report_and_in_the_code() {
        let id = KeyId::new("shop", "order").unwrap();
        let released = ReleasedView::of(&id, Outcome::Released);
        for released in [vec![], vec![released]] {
            let view = ReleaseView {
                released,
                unreadable: vec!["the row shop \u{1b}x holds something unreadable".to_owned()],
                dry_run: false,
            };
            let error = view.complaint(true).unwrap();
            assert_eq!(error.exit(), Exit::Partial);
            assert!(error.message().contains("1 row(s) could not be read"));
            let mut text = Vec::new();
            view.text(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("unreadable: the row shop \\u{1b}x"), "{text}");
            let json = serde_json::to_value(&view).unwrap();
            assert!(json["unreadable"][0].is_string());
        }
    }
}

//! What became of each row.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use super::{Obstacle, Proposal};
use crate::key::KeyId;

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was to be written: the proposal stands for itself.
    Proposed,
    /// The answer is stored.
    Completed,
    /// The row is gone.
    Released,
    /// Nothing can or need be done.
    Left(Obstacle),
    /// Left alone: it is not any more as it was seen or planned; how it is now.
    Changed(String),
    /// Left alone: what the provider says now comes to something else than was planned; to what.
    Disagrees(String),
    /// Left alone for an error of this row, which is told.
    Error(String),
    /// The commit was not answered and nobody could be asked afterwards: changed or not, the database knows.
    Unknown,
}

impl Outcome {
    /// The label under which it is counted.
    pub fn metric(&self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Left(obstacle) if obstacle.may_pass() => "waiting",
            Self::Left(_) => "left",
            Self::Changed(_) | Self::Disagrees(_) => "changed",
            Self::Error(_) => "error",
            Self::Unknown => "unknown",
        }
    }
}

/// One row and what became of it.
#[derive(Debug)]
pub struct Item {
    /// The key.
    pub id: KeyId,
    /// What was proposed, where it came to that.
    pub proposal: Option<Proposal>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What was done.
#[derive(Debug, Default)]
pub struct Report {
    /// One for each row, in the order in which they were decided.
    pub items: Vec<Item>,
    /// How long it took.
    pub elapsed: Duration,
    /// Whether it was asked to stop before all rows had their turn.
    pub interrupted: bool,
    /// The row that is being written.
    pub(super) under_way: Option<KeyId>,
}

impl Report {
    /// How many rows ended so.
    pub fn count(&self, fits: impl Fn(&Outcome) -> bool) -> usize {
        self.items.iter().filter(|item| fits(&item.outcome)).count()
    }

    /// Rows that were changed.
    pub fn changed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Completed | Outcome::Released))
    }

    /// Rows that were left alone for an error, or of which nobody knows.
    pub fn errors(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Error(_) | Outcome::Unknown))
    }
}

impl fmt::Display for Report {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = |outcome: &Outcome| matches!(outcome, Outcome::Left(obstacle) if obstacle.may_pass());
        let person = |outcome: &Outcome| matches!(outcome, Outcome::Left(obstacle) if !obstacle.may_pass());
        write!(
            f,
            "{} rows: completed {}, released {}, waiting {}, left for a person {}, moved meanwhile {}, errors {}",
            self.items.len(),
            self.count(|outcome| *outcome == Outcome::Completed),
            self.count(|outcome| *outcome == Outcome::Released),
            self.count(waiting),
            self.count(person),
            self.count(|outcome| matches!(outcome, Outcome::Changed(_) | Outcome::Disagrees(_))),
            self.errors(),
        )
    }
}

impl Report {
    /// Rows that had no turn, since an error or a stop came first.
    pub(super) fn list_the_rest(&mut self, ids: Vec<KeyId>) {
        if self.items.len() == ids.len() {
            return;
        }
        let known: HashSet<KeyId> = self.items.iter().map(|item| item.id.clone()).collect();
        let under_way = self.under_way.take();
        for id in ids.into_iter().filter(|id| !known.contains(id)) {
            // Given up in the middle: what it came to is not known here.
            let outcome = if under_way.as_ref() == Some(&id) {
                Outcome::Unknown
            } else {
                Outcome::Left(Obstacle::NotAsked("the work ended before its turn".to_owned()))
            };
            self.items.push(Item {
                id,
                proposal: None,
                outcome,
            });
        }
    }
}

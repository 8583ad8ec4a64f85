//! One check: what was done, what had to come of it, and what did.

use serde::Serialize;

use crate::error::Error;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As expected.
    Passed,
    /// Not as expected: the guarantee does not hold here.
    Failed,
    /// It could not be told.
    NotChecked,
}

impl Verdict {
    /// The word in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotChecked => "not_checked",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, which stays the same.
    pub name: &'static str,
    /// What was done.
    pub done: String,
    /// What had to come of it.
    pub expected: &'static str,
    /// What came of it; why not, where it was not checked.
    pub found: String,
    /// How it ended.
    pub verdict: Verdict,
    /// What that means for the business, in one sentence.
    pub meaning: String,
    #[serde(skip)]
    settled: bool,
}

impl Check {
    /// A check before it is made.
    pub(super) fn of(name: &'static str, done: impl Into<String>, expected: &'static str) -> Self {
        Self {
            name,
            done: done.into(),
            expected,
            found: String::new(),
            verdict: Verdict::NotChecked,
            meaning: String::new(),
            settled: false,
        }
    }

    /// Says what was found, and what it means in either case.
    pub(super) fn judge(
        &mut self,
        passed: bool,
        found: impl Into<String>,
        (good, bad): (impl Into<String>, impl Into<String>),
    ) {
        self.settled = true;
        self.found = found.into();
        (self.verdict, self.meaning) = if passed {
            (Verdict::Passed, good.into())
        } else {
            (Verdict::Failed, bad.into())
        };
    }

    /// Where nothing was found out: not checked.
    pub(super) fn or_not_checked(&mut self, why: &str) {
        if !self.settled {
            self.settled = true;
            why.clone_into(&mut self.found);
            "This was not checked.".clone_into(&mut self.meaning);
        }
    }
}

/// An error is an answer too: the check that was under way has failed.
pub(super) fn fail_next(checks: &mut [Check], error: &Error) {
    if let Some(check) = checks.iter_mut().find(|check| !check.settled) {
        check.judge(
            false,
            error.to_string(),
            ("", "The library got an error where it needs an answer."),
        );
    }
}

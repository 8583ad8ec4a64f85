//! What is said of a table as a whole, and what would help.

/// A reason against it, or what has to be known before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// What is so.
    pub text: String,
    /// What would help, where a [`super::Request`] or a command can.
    pub remedy: Option<Remedy>,
}

/// What would help. The texts do not say how it is asked for: that depends on who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Saying which column is this one of ours.
    Name(&'static str),
    /// Saying who sent all keys, or which column says so.
    NameClient,
    /// Leaving out this column, or another one where it is `None`.
    LeaveOut(Option<String>),
    /// Saying what this word for a state means.
    Explain(String),
    /// Saying that this state is to be done again, if so.
    DoAgain,
    /// Another schema for our table.
    OtherSchema,
    /// Settling what is unfinished.
    Settle,
    /// Looking at more rows.
    MoreRows,
}

impl Remark {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            remedy: None,
        }
    }

    pub(super) fn with(text: impl Into<String>, remedy: Remedy) -> Self {
        Self {
            text: text.into(),
            remedy: Some(remedy),
        }
    }
}

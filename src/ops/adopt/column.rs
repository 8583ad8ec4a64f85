//! What is said of one of our columns.

use serde::Serialize;

/// How a column of ours gets its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// By a column of theirs as it is.
    Fits,
    /// By a column of theirs, converted.
    Converts,
    /// By a default: they have no such column.
    Missing,
    /// Not at all: the table cannot be adopted so.
    Cannot,
}

impl Fit {
    /// The word in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Converts => "converts",
            Self::Missing => "missing",
            Self::Cannot => "cannot",
        }
    }
}

/// One of our columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnFit {
    /// Our name.
    pub ours: &'static str,
    /// Theirs.
    pub theirs: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Whether it can be.
    pub fit: Fit,
    /// The conversion, the default, or why not.
    pub how: String,
}

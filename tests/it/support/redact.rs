//! Output that differs from run to run, made comparable.

use regex::{Captures, Regex};

/// Replaces what changes from run to run: UUIDs, times, durations, ports and paths, and what a test adds.
pub(crate) struct Redactor {
    literals: Vec<(String, &'static str)>,
    patterns: Vec<(Regex, &'static str)>,
}

impl Redactor {
    /// The usual replacements.
    pub(crate) fn new() -> Self {
        let pattern = |text: &str| Regex::new(text).expect("a fixed pattern");
        let patterns = vec![
            (
                pattern(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
                "[uuid]",
            ),
            (
                pattern(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:\d\d)?)?( UTC)?"),
                "[time]",
            ),
            (pattern(r"/tmp/idemctl-[A-Za-z0-9./_-]*"), "[path]"),
            (pattern(r"\b(127\.0\.0\.1|localhost):\d+"), "$1:[port]"),
            (pattern(r"\bport=\d+"), "port=[port]"),
            (
                pattern(
                    r"\b\d+(\.\d+)?(e-\d+)? ?(ns|us|µs|ms|min|s|m|h|d)( ?\d+(\.\d+)? ?(ms|min|s|m|h))*\b",
                ),
                "[duration]",
            ),
            (
                pattern(r#"("[a-z_]*_seconds":\s*)-?\d+(\.\d+)?"#),
                "${1}[seconds]",
            ),
        ];
        Self {
            literals: Vec::new(),
            patterns,
        }
    }

    /// Replaces a text that only the test knows.
    pub(crate) fn literal(mut self, text: impl Into<String>, with: &'static str) -> Self {
        self.literals.push((text.into(), with));
        self
    }

    /// Replaces a pattern.
    pub(crate) fn pattern(mut self, pattern: &str, with: &'static str) -> Self {
        self.patterns
            .insert(0, (Regex::new(pattern).expect("a pattern of the test"), with));
        self
    }

    /// The text with everything replaced.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (literal, with) in &self.literals {
            text = text.replace(literal, with);
        }
        for (pattern, with) in &self.patterns {
            text = pattern
                .replace_all(&text, |found: &Captures<'_>| {
                    let mut new = String::new();
                    found.expand(with, &mut new);
                    new
                })
                .into_owned();
        }
        text
    }
}

//! Text for people as lines of styled pieces, so that stdout and the screen of `top` show the same.

use std::io::{self, Write};

use anstyle::Style;

use super::table::width;

/// One line: pieces from left to right. Whoever adds a piece has made it printable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Line(pub(crate) Vec<(Style, String)>);

impl Line {
    /// One piece.
    pub(crate) fn of(style: Style, text: impl Into<String>) -> Self {
        Self(vec![(style, text.into())])
    }

    /// Adds a piece at the end.
    pub(crate) fn push(&mut self, style: Style, text: impl Into<String>) {
        self.0.push((style, text.into()));
    }

    /// How many places it takes.
    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| width(text)).sum()
    }

    /// With the codes of its styles, and without an end.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (style, text) in &self.0 {
            write!(out, "{style}{text}{style:#}")?;
        }
        Ok(())
    }

    /// The bare text.
    pub(crate) fn write_plain(&self, out: &mut dyn Write) -> io::Result<()> {
        self.0
            .iter()
            .try_for_each(|(_, text)| out.write_all(text.as_bytes()))
    }
}

/// A head and, behind it, a text that goes on below its own beginning where a line is full. Without a `room` there is
/// one line.
pub(crate) fn hanging(head: Line, style: Style, text: &str, room: Option<usize>) -> Vec<Line> {
    let indent = head.width();
    let mut parts = match room {
        Some(room) => wrapped(text, room.saturating_sub(indent).max(MIN_ROOM)),
        None => vec![text.to_owned()],
    }
    .into_iter();
    let mut first = head;
    first.push(style, parts.next().unwrap_or_default());
    let rest = parts.map(|part| {
        let mut line = Line::of(Style::new(), " ".repeat(indent));
        line.push(style, part);
        line
    });
    std::iter::once(first).chain(rest).collect()
}

/// However narrow the terminal is: less is of no use to anybody.
const MIN_ROOM: usize = 10;

/// The text in lines of at most `room` places, broken at blanks; words that are longer are broken anywhere.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let needed = width(&line) + usize::from(!line.is_empty()) + width(word);
        if needed <= room {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            let mut longer = line.clone();
            longer.push(c);
            if width(&longer) > room && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks_and_long_words_anywhere() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("漢字漢字", 4), ["漢字", "漢字"]);
        assert_eq!(wrapped("", 4), [""]);
        let lines = hanging(
            Line::of(Style::new(), "  name  "),
            Style::new(),
            "0123456789 ab",
            Some(18),
        );
        let text: Vec<String> = lines
            .iter()
            .map(|line| line.0.iter().map(|(_, text)| text.as_str()).collect())
            .collect();
        assert_eq!(text, ["  name  0123456789", "        ab"]);
    }
}

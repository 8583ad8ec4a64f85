//! JSON whose strings a terminal can be shown: what could drive one is written as an escape, which reads the same.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

/// One line.
pub(super) fn write(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(out, Escaping(CompactFormatter));
    value.serialize(&mut serializer).map_err(io::Error::from)
}

/// Several lines, indented.
pub(super) fn write_pretty(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(out, Escaping(PrettyFormatter::new()));
    value.serialize(&mut serializer).map_err(io::Error::from)
}

/// Another formatter, with more escapes in strings. A stored body is passed through as it is.
struct Escaping<F>(F);

impl<F: Formatter> Formatter for Escaping<F> {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|c: char| c.is_control() || super::deceives(c)) {
            let (plain, marked) = rest.split_at(at);
            let length = marked.chars().next().map_or(0, char::len_utf8);
            let (mark, after) = marked.split_at(length);
            out.write_all(plain.as_bytes())?;
            for unit in mark.encode_utf16() {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = after;
        }
        out.write_all(rest.as_bytes())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array(out)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_array_value(out)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.begin_object_value(out)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.0.end_object_value(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_is_escaped_and_reads_the_same() {
        let text = "a\u{9b}31m\u{202e}b\u{7f}\u{1b}\n";
        let mut out = Vec::new();
        write(&mut out, &text).unwrap();
        let json = String::from_utf8(out).unwrap();
        assert_eq!(json, r#""a\u009b31m\u202eb\u007f\u001b\n""#);
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}

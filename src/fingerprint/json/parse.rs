//! The reader: recursive descent over bytes, bounded in depth.

use std::collections::BTreeMap;

use super::Value;
use crate::fingerprint::{MAX_BYTES, MAX_DEPTH, MAX_EXPONENT, number};

/// A problem and its place in words, to follow the name of the text.
type Parsed<T> = Result<T, String>;

/// The longest JSON Pointer that is shown whole, in characters.
const MAX_SHOWN: usize = 120;

enum Step {
    Name(String),
    Index(usize),
}

struct Parser<'a> {
    input: &'a [u8],
    at: usize,
    /// The containers that are open, for the depth and for the JSON Pointer in errors.
    path: Vec<Step>,
}

/// Reads exactly one JSON text.
pub(super) fn text(input: &[u8]) -> Parsed<Value> {
    if input.len() > MAX_BYTES {
        return Err(format!("has {} bytes; at most {MAX_BYTES} are read", input.len()));
    }
    let mut parser = Parser {
        input,
        at: 0,
        path: Vec::new(),
    };
    if input.starts_with(b"\xef\xbb\xbf") {
        return parser.fail(0, "begins with a byte order mark, which RFC 8259 forbids");
    }
    let value = parser.value()?;
    parser.blanks();
    match parser.peek() {
        None => Ok(value),
        Some(_) => parser.fail(parser.at, "goes on after its value"),
    }
}

impl Parser<'_> {
    fn value(&mut self) -> Parsed<Value> {
        self.blanks();
        match self.peek() {
            None => self.fail(self.at, "ends where a value is expected"),
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.word(),
        }
    }

    fn object(&mut self) -> Parsed<Value> {
        self.open()?;
        let mut members = BTreeMap::new();
        if self.closes(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.blanks();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return self.fail(start, "has no name in quotes where a member is expected");
            }
            let name = self.string()?;
            self.path.push(Step::Name(name.clone()));
            if members.contains_key(&name) {
                return self.fail(start, "has the same name twice in one object");
            }
            self.blanks();
            if !self.take(b':') {
                return self.fail(self.at, "has no colon after a name");
            }
            let value = self.value()?;
            self.path.pop();
            members.insert(name, value);
            if self.ends(b'}')? {
                return Ok(Value::Object(members));
            }
        }
    }

    fn array(&mut self) -> Parsed<Value> {
        self.open()?;
        let mut elements = Vec::new();
        if self.closes(b']') {
            return Ok(Value::Array(elements));
        }
        loop {
            self.path.push(Step::Index(elements.len()));
            elements.push(self.value()?);
            self.path.pop();
            if self.ends(b']')? {
                return Ok(Value::Array(elements));
            }
        }
    }

    /// Passes the opening bracket.
    fn open(&mut self) -> Parsed<()> {
        if self.path.len() >= MAX_DEPTH {
            return self.fail(self.at, &format!("is nested deeper than {MAX_DEPTH} levels"));
        }
        self.at += 1;
        Ok(())
    }

    /// Whether the container that was just opened is empty.
    fn closes(&mut self, bracket: u8) -> bool {
        self.blanks();
        self.take(bracket)
    }

    /// After a member or an element: whether the container ends here, or a comma follows.
    fn ends(&mut self, bracket: u8) -> Parsed<bool> {
        self.blanks();
        if self.take(bracket) {
            return Ok(true);
        }
        if self.take(b',') {
            return Ok(false);
        }
        self.fail(
            self.at,
            &format!("has neither a comma nor `{}` after a value", char::from(bracket)),
        )
    }

    fn word(&mut self) -> Parsed<Value> {
        let rest = &self.input[self.at..];
        for (word, value) in [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        if rest.starts_with(b"NaN") || rest.starts_with(b"Infinity") {
            return self.fail(self.at, "has NaN or Infinity, which are no JSON numbers");
        }
        self.fail(self.at, "has something that is no JSON value")
    }

    /// `-? (0 | [1-9] digits*) (. digits+)? ([eE] [+-]? digits+)?`
    fn number(&mut self) -> Parsed<Value> {
        let start = self.at;
        if self.take(b'-') && self.peek() == Some(b'I') {
            return self.fail(start, "has NaN or Infinity, which are no JSON numbers");
        }
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (leading_zero && whole > 1) {
            return self.fail(
                start,
                "has a number without a digit before its point, or with a zero in front",
            );
        }
        if self.take(b'.') && self.digits() == 0 {
            return self.fail(self.at, "has a number without a digit after its point");
        }
        if self.take(b'e') || self.take(b'E') {
            let _signed = self.take(b'+') || self.take(b'-');
            if self.digits() == 0 {
                return self.fail(self.at, "has a number without a digit in its exponent");
            }
        }
        let text = String::from_utf8_lossy(&self.input[start..self.at]).into_owned();
        if !number::in_range(&text) {
            return self.fail(
                start,
                &format!("has a number with an exponent over {MAX_EXPONENT}"),
            );
        }
        Ok(Value::Number(text))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn string(&mut self) -> Parsed<String> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let run = self.at;
            while self
                .peek()
                .is_some_and(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\')
            {
                self.at += 1;
            }
            match std::str::from_utf8(&self.input[run..self.at]) {
                Ok(text) => out.push_str(text),
                Err(error) => return self.fail(run + error.valid_up_to(), "has bytes that are not UTF-8"),
            }
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => {
                    return self.fail(self.at, "has a control character in a string that is not escaped");
                }
                None => return self.fail(start, "ends within the string that begins"),
            }
        }
    }

    fn escape(&mut self) -> Parsed<char> {
        let start = self.at;
        self.at += 1;
        let Some(kind) = self.peek() else {
            return self.fail(start, "ends within the escape that begins");
        };
        self.at += 1;
        Ok(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(start),
            _ => return self.fail(start, "has an unknown escape"),
        })
    }

    /// The character of `\uXXXX`, or of two of them that make a surrogate pair. `\u` has been passed.
    fn unicode(&mut self, start: usize) -> Parsed<char> {
        let first = self.hex4(start)?;
        let code = match first {
            0xD800..=0xDBFF => {
                let paired = self.take(b'\\') && self.take(b'u');
                let second = if paired { self.hex4(start)? } else { 0 };
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return self.fail(start, "has a lone surrogate");
                }
                0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            other => other,
        };
        match char::from_u32(code) {
            Some(c) => Ok(c),
            None => self.fail(start, "has a lone surrogate"),
        }
    }

    fn hex4(&mut self, start: usize) -> Parsed<u32> {
        let digits = self.input.get(self.at..self.at + 4).unwrap_or_default();
        let mut code = 0;
        for digit in digits {
            match char::from(*digit).to_digit(16) {
                Some(digit) => code = code * 16 + digit,
                None => return self.fail(start, "has a \\u escape without four hex digits"),
            }
        }
        if digits.len() != 4 {
            return self.fail(start, "has a \\u escape without four hex digits");
        }
        self.at += 4;
        Ok(code)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn fail<T>(&self, at: usize, problem: &str) -> Parsed<T> {
        let before = &self.input[..at.min(self.input.len())];
        let line = before.split(|byte| *byte == b'\n').count();
        let line_start = before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1);
        // Bytes of the form 10xxxxxx go on with a character that has been counted.
        let column = before[line_start..]
            .iter()
            .filter(|byte| **byte & 0xC0 != 0x80)
            .count()
            + 1;
        let pointer = self.pointer();
        Err(format!(
            "{problem} at byte {at} (line {line}, column {column}), JSON Pointer \"{pointer}\""
        ))
    }

    /// The JSON Pointer (RFC 6901) of the place, with what a terminal could take for a command escaped.
    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            pointer.push('/');
            match step {
                Step::Name(name) => pointer.push_str(&name.replace('~', "~0").replace('/', "~1")),
                Step::Index(index) => pointer.push_str(&index.to_string()),
            }
        }
        let mut shown: String = pointer
            .chars()
            .take(MAX_SHOWN)
            .flat_map(char::escape_debug)
            .collect();
        if pointer.chars().nth(MAX_SHOWN).is_some() {
            shown.push('…');
        }
        shown
    }
}

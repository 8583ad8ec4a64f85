//! Masking the tokens of a JSON document in their places.
//!
//! One pass without recursion, so that depth costs memory and never the stack.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

use super::name::{self, Kind};
use super::{Edit, JSON_MASK, MASK, Masker, Pointer, apply, card, text};

/// What applies to a document.
pub(super) struct Rules<'a> {
    pub(super) masker: &'a Masker,
    pub(super) pointers: &'a [Pointer],
    /// Written by idemctl: its names of identities are left alone.
    pub(super) own: bool,
    pub(super) nesting: u8,
}

/// What people need for acting on a key, in JSON of our own.
const IDENTITIES: [&str; 8] = [
    "client_id",
    "key",
    "order_id",
    "fingerprint",
    "lease_token",
    "provider",
    "provider_key",
    "reference",
];

/// Whether the text is one JSON document.
pub(super) fn is_document(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// What to mask in a JSON document. Text that is none gives nonsense, and never a panic.
pub(super) fn edits(json: &str, rules: &Rules<'_>) -> Vec<Edit> {
    let mut walk = Walk {
        json,
        rules,
        stack: Vec::new(),
        edits: Vec::new(),
    };
    walk.run();
    walk.edits
}

/// What a value is, as far as its place tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// By its content.
    Open,
    /// By its name.
    Named(Kind),
    /// By a pointer: hidden, even `null`.
    Pointed,
    /// Shown as it is.
    Identity,
}

/// An object or array that is open.
struct Frame {
    start: usize,
    fate: Fate,
    object: bool,
    /// Position of the element.
    index: usize,
    /// The member whose value comes next; `None` where a name comes next.
    name: Option<String>,
    /// Pointers whose parts so far lead here.
    pointers: Vec<usize>,
    /// Describes a card.
    card: bool,
    /// Of a pair (`{"name": .., "value": ..}`, `["name", ".."]`): the name is a secret's.
    secret_pair: bool,
    /// Of a pair whose value came first.
    value: Option<Range<usize>>,
}

struct Walk<'a> {
    json: &'a str,
    rules: &'a Rules<'a>,
    stack: Vec<Frame>,
    edits: Vec<Edit>,
}

impl Walk<'_> {
    fn run(&mut self) {
        let bytes = self.json.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'{' | b'[' => self.open(at, *byte == b'{'),
                b'}' | b']' => self.close(at + 1),
                b',' => {
                    if let Some(frame) = self.stack.last_mut() {
                        frame.index += 1;
                        frame.name = None;
                    }
                }
                b'"' => {
                    let end = string_end(bytes, at);
                    self.string(at..end);
                    at = end;
                    continue;
                }
                b':' | b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => {
                    let rest = &bytes[at..];
                    let end = rest
                        .iter()
                        .position(|b| matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r'));
                    let end = at + end.unwrap_or(rest.len()).max(1);
                    self.scalar(at..end);
                    at = end;
                    continue;
                }
            }
            at += 1;
        }
    }

    /// What is known of the value that comes next, and the pointers that go on below it.
    fn fate(&self) -> (Fate, Vec<usize>) {
        let Some(parent) = self.stack.last() else {
            return (Fate::Open, (0..self.rules.pointers.len()).collect());
        };
        let depth = self.stack.len() - 1;
        let (mut below, mut pointed) = (Vec::new(), false);
        if !parent.pointers.is_empty() {
            let index;
            let part = if let Some(name) = &parent.name {
                name
            } else {
                index = parent.index.to_string();
                &index
            };
            below.clone_from(&parent.pointers);
            below.retain(|pointer| self.rules.pointers[*pointer].matches(depth, part));
            pointed = below
                .iter()
                .any(|pointer| self.rules.pointers[*pointer].ends_at(depth));
            below.retain(|pointer| !self.rules.pointers[*pointer].ends_at(depth));
        }
        let fate = match &parent.name {
            _ if pointed => Fate::Pointed,
            None if parent.secret_pair && parent.index == 1 => Fate::Named(Kind::Secret),
            None => Fate::Open,
            Some(name) if self.rules.own && IDENTITIES.contains(&name.as_str()) => Fate::Identity,
            Some(name) if parent.secret_pair && is_pair_value(name) => Fate::Named(Kind::Secret),
            Some(name) if parent.card && name.eq_ignore_ascii_case("number") => Fate::Named(Kind::Card),
            Some(name) => name::kind(name).map_or(Fate::Open, Fate::Named),
        };
        (fate, below)
    }

    fn open(&mut self, start: usize, object: bool) {
        let (fate, pointers) = self.fate();
        let above = self.stack.last();
        // An array of cards is named as one card is.
        let named = above.and_then(|parent| parent.name.as_deref());
        let card = named.map_or_else(
            || above.is_some_and(|parent| parent.card && !parent.object),
            name::is_card,
        );
        self.stack.push(Frame {
            start,
            fate,
            object,
            index: 0,
            name: None,
            pointers,
            card,
            secret_pair: false,
            value: None,
        });
    }

    fn close(&mut self, end: usize) {
        let Some(frame) = self.stack.pop() else { return };
        let hidden = match frame.fate {
            Fate::Pointed | Fate::Named(Kind::Secret) => true,
            // The values of a header.
            Fate::Named(Kind::SecretText) => !frame.object,
            _ => false,
        };
        if hidden {
            self.edits.push((frame.start..end, JSON_MASK.into()));
        }
        self.ended(frame.start..end, None);
    }

    /// A value has ended: looks whether it is one half of a pair. `text`: what it says, if it is a string.
    fn ended(&mut self, range: Range<usize>, text: Option<&str>) {
        let Some(parent) = self.stack.last_mut() else {
            return;
        };
        let secret = |text: &str| name::of_header(text).is_some();
        match &parent.name {
            Some(name) if is_pair_name(name) => {
                parent.secret_pair |= text.is_some_and(secret);
                if let (true, Some(value)) = (parent.secret_pair, parent.value.take()) {
                    self.edits.push((value, JSON_MASK.into()));
                }
            }
            Some(name) if is_pair_value(name) => parent.value = Some(range),
            None if !parent.object && parent.index == 0 => parent.secret_pair = text.is_some_and(secret),
            _ => {}
        }
    }

    fn string(&mut self, range: Range<usize>) {
        let json = self.json;
        let decoded = decode(&json[range.clone()]);
        if let Some(frame) = self.stack.last_mut()
            && frame.object
            && frame.name.is_none()
        {
            let mut cards = Vec::new();
            card::edits(&decoded, &mut cards);
            if let Cow::Owned(masked) = apply(&decoded, cards) {
                self.edits.push((range, encode(&masked)));
            }
            frame.name = Some(decoded.into_owned());
            return;
        }
        let shown = match self.fate().0 {
            Fate::Identity => None,
            Fate::Pointed => Some(Cow::Borrowed(MASK)),
            Fate::Named(kind) => text::named(kind, &decoded),
            Fate::Open => match self.rules.masker.document(&decoded, self.rules.nesting + 1) {
                Cow::Owned(masked) => Some(Cow::Owned(masked)),
                Cow::Borrowed(_) => None,
            },
        };
        if let Some(shown) = shown {
            self.edits.push((range.clone(), encode(&shown)));
        }
        self.ended(range, Some(&decoded));
    }

    /// A number, `true`, `false` or `null`.
    fn scalar(&mut self, range: Range<usize>) {
        let token = &self.json[range.clone()];
        let number = token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        let shown = match self.fate().0 {
            Fate::Identity => None,
            Fate::Pointed => Some(Cow::Borrowed(MASK)),
            // Whether there is a secret is none.
            _ if !number => None,
            Fate::Named(kind) => text::named(kind, token),
            Fate::Open => {
                let mut cards = Vec::new();
                card::edits(token, &mut cards);
                match apply(token, cards) {
                    Cow::Owned(masked) => Some(Cow::Owned(masked)),
                    Cow::Borrowed(_) => None,
                }
            }
        };
        if let Some(shown) = shown {
            self.edits.push((range.clone(), encode(&shown)));
        }
        // `null` and the like have nothing to hide later either.
        if number {
            self.ended(range, None);
        }
    }
}

fn is_pair_name(name: &str) -> bool {
    ["name", "key", "header", "field", "param", "parameter"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known))
}

fn is_pair_value(name: &str) -> bool {
    name.eq_ignore_ascii_case("value") || name.eq_ignore_ascii_case("values")
}

/// Behind the closing quote of the string that begins here.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn encode(text: &str) -> Cow<'static, str> {
    Cow::Owned(serde_json::Value::from(text).to_string())
}

/// What a string token says; half a surrogate pair, which JSON allows and Rust does not, as U+FFFD.
fn decode(token: &str) -> Cow<'_, str> {
    let inner = token.strip_prefix('"').unwrap_or(token);
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    let mut units: Vec<u16> = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    let mut buffer = [0; 2];
    while let Some(c) = rest.next() {
        let c = match c {
            '\\' => match rest.next() {
                Some('u') => {
                    let digits = rest.as_str().get(..4).unwrap_or_default();
                    units.push(u16::from_str_radix(digits, 16).unwrap_or(0xfffd));
                    rest = rest.as_str().get(4..).unwrap_or_default().chars();
                    continue;
                }
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(other) => other,
                None => break,
            },
            plain => plain,
        };
        units.extend_from_slice(c.encode_utf16(&mut buffer));
    }
    Cow::Owned(String::from_utf16_lossy(&units))
}

//! Values of our own, and the many ways to spell each as JSON.

#![expect(clippy::unwrap_used, reason = "a test helper may panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;

/// A JSON value with one representation for each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Model {
    Null,
    Bool(bool),
    /// `digits * 10^exponent`, where the last digit is not 0 unless all of it is.
    Number(i128, i32),
    String(String),
    Array(Vec<Model>),
    Object(BTreeMap<String, Model>),
}

impl Model {
    pub(crate) fn number(mut digits: i128, mut exponent: i32) -> Self {
        if digits == 0 {
            return Self::Number(0, 0);
        }
        while digits % 10 == 0 {
            digits /= 10;
            exponent += 1;
        }
        Self::Number(digits, exponent)
    }

    /// Another value that differs in one place.
    pub(crate) fn changed(&self, choice: u64) -> Self {
        let pick = |len: usize| usize::try_from(choice).unwrap_or(7) % len;
        match self {
            Self::Null => Self::Bool(false),
            Self::Bool(false) => Self::Null,
            Self::Bool(true) => Self::String("true".to_owned()),
            Self::Number(digits, exponent) if choice.is_multiple_of(2) => Self::number(digits + 1, *exponent),
            Self::Number(digits, exponent) => Self::number(digits * 100 + 1, exponent - 2),
            Self::String(text) if choice.is_multiple_of(2) => Self::String(format!("{text}\0")),
            Self::String(text) => Self::Array(vec![Self::String(text.clone())]),
            Self::Array(elements) if elements.is_empty() => Self::Object(BTreeMap::new()),
            Self::Array(elements) => {
                let mut elements = elements.clone();
                let at = pick(elements.len());
                match choice % 3 {
                    0 => elements.insert(at, Self::Null),
                    _ => elements[at] = elements[at].changed(choice / 3),
                }
                Self::Array(elements)
            }
            Self::Object(members) if members.is_empty() => Self::Array(vec![]),
            Self::Object(members) => {
                let mut members = members.clone();
                let name = members.keys().nth(pick(members.len())).unwrap().clone();
                let value = members.remove(&name).unwrap();
                match choice % 3 {
                    0 => {}
                    1 => drop(members.insert(name, value.changed(choice / 3))),
                    _ => drop(members.insert(format!("{name}\u{10ffff}x{}", members.len()), value)),
                }
                Self::Object(members)
            }
        }
    }
}

fn nested(numbers: BoxedStrategy<Model>) -> impl Strategy<Value = Model> {
    // Few names, so that two bodies are sometimes nearly the same; some at the edges of UTF-16's order.
    let name = prop_oneof![
        Just("amount".to_owned()),
        Just("\u{ffff}".to_owned()),
        Just("\u{10000}".to_owned()),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Model::Null),
        any::<bool>().prop_map(Model::Bool),
        numbers,
        any::<String>().prop_map(Model::String),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Model::Array),
            prop::collection::btree_map(name.clone(), inner, 0..5).prop_map(Model::Object),
        ]
    })
}

/// Any value.
pub(crate) fn model() -> impl Strategy<Value = Model> {
    let near = (-30_i128..30, -3..3_i32);
    let far = (i128::from(i64::MIN) * 9..i128::from(i64::MAX) * 9, -400..400_i32);
    nested(
        prop_oneof![near, far]
            .prop_map(|(digits, exponent)| Model::number(digits, exponent))
            .boxed(),
    )
}

/// Values whose numbers are integers of at most 21 digits, on which we agree with Python.
pub(crate) fn whole_number_model() -> impl Strategy<Value = Model> {
    let most = 999_999_999_999_999_999_999_i128;
    nested(
        prop_oneof![-most..=most, -10..10_i128]
            .prop_map(|digits| Model::number(digits, 0))
            .boxed(),
    )
}

/// Spells values at random, repeatably.
pub(crate) struct Speller {
    random: fastrand::Rng,
    one_line: bool,
    whole_numbers: bool,
}

impl Speller {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            one_line: false,
            whole_numbers: false,
        }
    }

    pub(crate) fn one_line(self) -> Self {
        Self {
            one_line: true,
            ..self
        }
    }

    pub(crate) fn whole_numbers(self) -> Self {
        Self {
            whole_numbers: true,
            ..self
        }
    }

    pub(crate) fn spell(&mut self, model: &Model) -> String {
        let mut out = String::new();
        self.blanks(&mut out);
        self.value(&mut out, model);
        self.blanks(&mut out);
        out
    }

    fn value(&mut self, out: &mut String, model: &Model) {
        match model {
            Model::Null => out.push_str("null"),
            Model::Bool(bool) => out.push_str(&bool.to_string()),
            Model::Number(digits, exponent) => self.number(out, *digits, *exponent),
            Model::String(text) => self.string(out, text),
            Model::Array(elements) => {
                out.push('[');
                for (i, element) in elements.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    out.push_str(&self.spell(element));
                }
                self.blanks(out);
                out.push(']');
            }
            Model::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                self.random.shuffle(&mut members);
                out.push('{');
                for (i, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    self.blanks(out);
                    self.string(out, name);
                    self.blanks(out);
                    out.push(':');
                    out.push_str(&self.spell(value));
                }
                self.blanks(out);
                out.push('}');
            }
        }
    }

    fn number(&mut self, out: &mut String, digits: i128, exponent: i32) {
        let whole = (0..22).contains(&exponent);
        if self.whole_numbers || (whole && self.random.bool()) {
            let zeros = usize::try_from(exponent).unwrap();
            write!(out, "{digits}{}", "0".repeat(zeros)).unwrap();
            return;
        }
        out.push_str(if digits < 0 || (digits == 0 && self.random.bool()) {
            "-"
        } else {
            ""
        });
        let zeros = self.random.usize(0..3);
        let digits = format!("{}{}", digits.unsigned_abs(), "0".repeat(zeros));
        let point = self.random.usize(0..=digits.len());
        let (whole, fraction) = digits.split_at(point);
        // A second digit after a zero in front is not JSON.
        let (whole, fraction) = match digits.as_bytes()[0] {
            b'0' if point > 1 => ("0", &digits[1..]),
            _ => (if point == 0 { "0" } else { whole }, fraction),
        };
        out.push_str(whole);
        if !fraction.is_empty() {
            write!(out, ".{fraction}").unwrap();
        }
        let exponent = exponent - i32::try_from(zeros).unwrap() + i32::try_from(fraction.len()).unwrap();
        if exponent != 0 || self.random.bool() {
            out.push(if self.random.bool() { 'e' } else { 'E' });
            let plus = if self.random.bool() { "+" } else { "" };
            out.push_str(if exponent < 0 { "-" } else { plus });
            write!(out, "{}{}", "0".repeat(self.random.usize(0..3)), exponent.abs()).unwrap();
        }
    }

    fn string(&mut self, out: &mut String, text: &str) {
        out.push('"');
        for c in text.chars() {
            let short = "\"\\/\u{8}\u{c}\n\r\t".chars().position(|other| other == c);
            let must = c < ' ' || c == '"' || c == '\\';
            match (short, self.random.u8(0..3)) {
                (Some(at), 0) => {
                    out.push('\\');
                    out.push(char::from(b"\"\\/bfnrt"[at]));
                }
                (_, choice) if must || choice == 1 => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        if self.random.bool() {
                            write!(out, "\\u{unit:04x}").unwrap();
                        } else {
                            write!(out, "\\u{unit:04X}").unwrap();
                        }
                    }
                }
                _ => out.push(c),
            }
        }
        out.push('"');
    }

    fn blanks(&mut self, out: &mut String) {
        let kinds = if self.one_line { 2 } else { 4 };
        for _ in 0..self.random.usize(0..3) {
            out.push([' ', '\t', '\n', '\r'][self.random.usize(0..kinds)]);
        }
    }
}

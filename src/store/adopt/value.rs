//! Where the value of one of our columns comes from.

use std::fmt::Write as _;

use super::quote_literal;
use crate::store::quote_ident;

/// A word of theirs for a state, and ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) theirs: String,
    pub(crate) ours: &'static str,
}

/// Where the value of one of our columns comes from. Names of columns are theirs, unquoted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// As it is.
    As(String),
    /// As text.
    Text(String),
    /// A text that holds a number.
    Number(String),
    /// As PostgreSQL prints it, kept as `json`.
    Json(String),
    /// The bytes of a text.
    Bytes(String),
    /// A time without time zone, in this one.
    In(String, String),
    /// Text that is 64 hex digits already, else the SHA-256 of the text.
    Fingerprint(String),
    /// Hex digits of bytes, if there are 32 of them, else the SHA-256 of the bytes.
    FingerprintBytes(String),
    /// Their words for a state, then words that are known in any case; any other is null, which our table refuses.
    Status(String, Vec<Word>, Vec<Word>),
    /// Done where the first is there, in progress where none is; null where they contradict each other, or the first is
    /// empty.
    DoneWhere(Vec<String>),
    /// So many seconds later.
    Later(Box<Value>, f64),
    /// The first that is not null.
    Either(Box<Value>, Box<Value>),
    /// A text of ours.
    Constant(String),
    /// When the statement runs.
    Now,
    /// Nothing.
    Null,
}

impl Value {
    /// The expression, over the row `s`.
    pub(crate) fn sql(&self) -> String {
        let s = |name: &String| format!("s.{}", quote_ident(name));
        match self {
            Self::As(name) => s(name),
            Self::Text(name) => format!("{}::text", s(name)),
            Self::Number(name) => format!("{}::text::int", s(name)),
            Self::Json(name) => format!("{}::text::json", s(name)),
            Self::Bytes(name) => format!("convert_to({}::text, 'UTF8')", s(name)),
            Self::In(name, zone) => format!("{} at time zone {}", s(name), quote_literal(zone)),
            Self::Fingerprint(name) => {
                let text = format!("{}::text", s(name));
                format!(
                    "case when {text} ~* '^[0-9a-f]{{64}}$' then lower({text}) else \
                     encode(sha256(convert_to({text}, 'UTF8')), 'hex') end"
                )
            }
            Self::FingerprintBytes(name) => {
                let bytes = s(name);
                format!(
                    "case when octet_length({bytes}) = 32 then encode({bytes}, 'hex') else encode(sha256({bytes}), \
                     'hex') end"
                )
            }
            Self::Status(name, words, known) => status(&s(name), words, known),
            Self::DoneWhere(names) => done_where(&names.iter().map(s).collect::<Vec<_>>()),
            Self::Later(value, seconds) => {
                format!("{} + interval '{seconds} seconds'", value.sql())
            }
            Self::Either(first, second) => format!("coalesce({}, {})", first.sql(), second.sql()),
            Self::Constant(text) => quote_literal(text),
            Self::Now => "now()".to_owned(),
            Self::Null => "null".to_owned(),
        }
    }

    /// Whether it is another one each time that it is asked for.
    pub(super) fn moves(&self) -> bool {
        match self {
            Self::Now => true,
            Self::Later(value, _) => value.moves(),
            Self::Either(first, second) => first.moves() || second.moves(),
            _ => false,
        }
    }
}

/// Compared byte by byte, whatever the column's collation takes for equal.
fn status(column: &str, words: &[Word], known: &[Word]) -> String {
    let whens = |words: &[Word]| {
        words
            .iter()
            .fold(String::new(), |mut text, Word { theirs, ours }| {
                // Writing into a string cannot fail.
                let _ = write!(text, " when {} then '{ours}'", quote_literal(theirs));
                text
            })
    };
    let text = format!("{column}::text collate \"C\"");
    let mut states: Vec<&str> = known.iter().map(|word| word.ours).collect();
    states.dedup();
    let mut known = states.iter().fold(String::new(), |mut sql, state| {
        let list: Vec<String> = known
            .iter()
            .filter(|word| word.ours == *state)
            .map(|word| quote_literal(&word.theirs))
            .collect();
        let _ = write!(sql, " when lower({text}) in ({}) then '{state}'", list.join(", "));
        sql
    });
    if !known.is_empty() {
        known = format!("case{known} end");
    }
    match (words, known.as_str()) {
        ([], known) => known.to_owned(),
        (words, "") => format!("case {text}{} end", whens(words)),
        (words, known) => format!("case {text}{} else {known} end", whens(words)),
    }
}

/// What an answer may look like that is none yet.
const EMPTY: &str = r"('', 'null', '{}', '[]', E'\\x')";

fn done_where(signs: &[String]) -> String {
    let Some((first, weaker)) = signs.split_first() else {
        return "null".to_owned();
    };
    let absent = weaker.iter().fold(format!("{first} is null"), |mut text, sign| {
        // Writing into a string cannot fail.
        let _ = write!(text, " and coalesce({sign}::text, '') in {EMPTY}");
        text
    });
    format!("case when {first}::text not in {EMPTY} then 'done' when {absent} then 'in_progress' end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_are_quoted() {
        let value = Value::Status(
            "st\"ate".to_owned(),
            vec![Word {
                theirs: "it's \\ done".to_owned(),
                ours: "done",
            }],
            Vec::new(),
        );
        assert_eq!(
            value.sql(),
            "case s.\"st\"\"ate\"::text collate \"C\" when E'it''s \\\\ done' then 'done' end"
        );
    }
}

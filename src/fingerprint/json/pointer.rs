//! JSON Pointers (RFC 6901) into a value.

use std::fmt;

#[cfg(feature = "operate")]
use super::Value;

/// A checked JSON Pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    text: String,
    tokens: Vec<String>,
}

impl Pointer {
    /// Reads a pointer; otherwise says what is wrong, to follow the name of the setting.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let tokens = if text.is_empty() {
            Vec::new()
        } else {
            let Some(rest) = text.strip_prefix('/') else {
                return Err(format!("is {text:?}, a JSON Pointer that does not begin with /"));
            };
            rest.split('/')
                .map(|token| unescape(token, text))
                .collect::<Result<_, _>>()?
        };
        Ok(Self {
            text: text.to_owned(),
            tokens,
        })
    }

    /// The reference tokens, unescaped.
    pub(crate) fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// What the pointer leads to, if it is there. Array indices have no zeros in front (RFC 6901 section 4).
    #[cfg(feature = "operate")]
    pub(crate) fn find<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        self.tokens.iter().try_fold(value, |value, token| match value {
            Value::Object(members) => members.get(token),
            Value::Array(elements) => {
                let index: usize = token.parse().ok()?;
                (index.to_string() == *token).then(|| elements.get(index))?
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unescape(token: &str, pointer: &str) -> Result<String, String> {
    let stray = token
        .split('~')
        .skip(1)
        .any(|after| !after.starts_with(['0', '1']));
    if stray {
        return Err(format!(
            "is {pointer:?}, a JSON Pointer where ~ is not written ~0"
        ));
    }
    // In this order: ~01 is ~1, not /.
    Ok(token.replace("~1", "/").replace("~0", "~"))
}

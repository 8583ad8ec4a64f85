//! Places of a JSON document that the operator wants hidden.

use std::str::FromStr;

/// A JSON Pointer (RFC 6901) such as `/customer/email`, in which a part `*` stands for any one member or element.
///
/// A member that is really called `*` is meant too, but cannot be named alone. The empty pointer, which would
/// mean the whole document, is refused: bodies are hidden as a whole unless they are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

impl FromStr for Pointer {
    type Err = String;

    /// What is wrong with it and what is allowed.
    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = "write a JSON Pointer (RFC 6901) such as /customer/email or /items/*/card";
        let fail = |problem: &str| Err(format!("{text:?} {problem}; {allowed}"));
        let Some(rest) = text.strip_prefix('/') else {
            return fail("does not begin with a slash");
        };
        if rest.split('/').any(is_wrongly_escaped) {
            return fail("has a `~` that is followed by neither 0 nor 1");
        }
        let parts = rest
            .split('/')
            .map(|part| part.replace("~1", "/").replace("~0", "~"));
        Ok(Self(parts.collect()))
    }
}

fn is_wrongly_escaped(part: &str) -> bool {
    part.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1']))
}

impl<'de> serde::Deserialize<'de> for Pointer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Pointer {
    /// Whether its part at this depth is this member or element.
    pub(super) fn matches(&self, depth: usize, part: &str) -> bool {
        self.0.get(depth).is_some_and(|own| own == "*" || own == part)
    }

    /// Whether the part at this depth is the last.
    pub(super) fn ends_at(&self, depth: usize) -> bool {
        self.0.len() == depth + 1
    }
}

//! Masking text that is no JSON: forms, headers, logs, XML, sentences, and JSON that was cut off.

use std::borrow::Cow;
use std::ops::Range;

use super::name::{self, Kind};
use super::{Edit, MASK, apply, card};

/// Longest name that is looked at, in bytes.
const MAX_NAME: usize = 80;

/// How far a tag, or the headers of a part, are followed, in bytes.
const MAX_TAG: usize = 400;

/// Where a value without quotes ends.
const ENDS: [char; 13] = ['&', ';', ',', '<', '>', '"', '\'', ')', '}', ']', '|', '\\', '`'];

/// Words before the secret part of a header's value.
const SCHEMES: [&str; 6] = ["bearer", "basic", "digest", "token", "negotiate", "apikey"];

/// How secrets begin that say by themselves what they are: keys of payment providers, and JSON in base64, which is
/// what JSON Web Tokens are made of and is not looked into.
const PREFIXES: [&str; 6] = ["sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "eyJ"];

/// What to mask in a text.
pub(super) fn edits(text: &str) -> Vec<Edit> {
    let mut out = Vec::new();
    card::edits(text, &mut out);
    pem(text, &mut out);
    elements(text, &mut out);
    named_parts(text, &mut out);
    pairs(text, &mut out);
    words(text, &mut out);
    out
}

/// What to show of a value whose name tells its kind; `None` where that is the value itself.
pub(super) fn named(kind: Kind, value: &str) -> Option<Cow<'static, str>> {
    if value.trim().is_empty() {
        return None;
    }
    match kind {
        Kind::Secret | Kind::SecretText => Some(MASK.into()),
        Kind::Account => {
            let signs: Vec<char> = value.chars().filter(|c| c.is_alphanumeric()).collect();
            let last = signs.len().checked_sub(4).filter(|rest| *rest >= 4);
            let last: String = last.map_or(String::new(), |from| signs[from..].iter().collect());
            Some(format!("{MASK}{last}").into())
        }
        Kind::Card => {
            if let Cow::Owned(masked) = apply(value, edits(value)) {
                return Some(masked.into());
            }
            // Ten digits are what may be shown of a card number: there they have been cut already.
            (card::count(value) > 10).then_some(MASK.into())
        }
    }
}

/// Private keys in PEM armour (RFC 7468).
fn pem(text: &str, out: &mut Vec<Edit>) {
    let mut from = 0;
    while let Some(begin) = text[from..].find("PRIVATE KEY-----").map(|at| from + at) {
        let start = begin + "PRIVATE KEY-----".len();
        let end = text[start..].find("-----END").map_or(text.len(), |at| start + at);
        if end > start {
            out.push((start..end, MASK.into()));
        }
        // Past the end's own line, which holds the same words.
        from = text[end..]
            .find("PRIVATE KEY-----")
            .map_or(text.len(), |at| end + at + "PRIVATE KEY-----".len());
    }
}

/// Content of XML elements with secret names, whatever their namespace.
fn elements(text: &str, out: &mut Vec<Edit>) {
    let mut from = 0;
    while let Some(at) = text[from..].find('<').map(|at| from + at) {
        from = at + 1;
        let rest = &text[from..];
        let length = rest
            .find(|c: char| c.is_whitespace() || matches!(c, '>' | '/' | '<' | '='))
            .unwrap_or(rest.len());
        let full = &rest[..length];
        if full.is_empty() || full.len() > MAX_NAME {
            continue;
        }
        let local = full.rsplit(':').next().unwrap_or(full);
        let Some(kind) = name::kind(local) else { continue };
        let Some(close) = rest.find('>') else { return };
        if rest[..close].ends_with('/') {
            continue;
        }
        let start = from + close + 1;
        let end = text[start..]
            .find(&format!("</{full}"))
            .map_or(text.len(), |at| start + at);
        if let Some(shown) = named(kind, &text[start..end]) {
            out.push((start..end, shown));
        }
        from = end;
    }
}

/// What is named by an attribute `name="..."`: a part of a multipart form (RFC 7578), an HTML input, an element.
fn named_parts(text: &str, out: &mut Vec<Edit>) {
    let mut from = 0;
    while let Some(at) = text[from..].find("name=").map(|at| from + at) {
        from = at + "name=".len();
        let Some(quote) = text[from..].chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            continue;
        };
        let start = from + 1;
        let Some(length) = text[start..].find(quote).filter(|length| *length <= MAX_NAME) else {
            continue;
        };
        let Some(kind) = name::kind(&text[start..start + length]) else {
            continue;
        };
        let behind = start + length + 1;
        let before = &text[text.floor_char_boundary(at.saturating_sub(MAX_TAG))..at];
        let line = before.rsplit('\n').next().unwrap_or(before);
        let range = if line.contains("form-data") {
            part_body(text, behind)
        } else {
            attribute_or_content(text, behind)
        };
        let Some(range) = range else { continue };
        from = range.end;
        if let Some(shown) = named(kind, &text[range.clone()]) {
            out.push((range, shown));
        }
    }
}

/// From the blank line behind a part's headers to the next boundary.
fn part_body(text: &str, from: usize) -> Option<Range<usize>> {
    let rest = &text[from..];
    let headers = &rest[..rest.floor_char_boundary(MAX_TAG)];
    let blank = ["\r\n\r\n", "\n\n"];
    let start = blank
        .iter()
        .filter_map(|blank| Some(headers.find(blank)? + blank.len()))
        .min()?;
    let end = rest[start..].find("\n--").map_or(rest.len(), |at| start + at);
    let end = end - usize::from(rest[..end].ends_with('\r'));
    Some(from + start..from + end.max(start))
}

/// The attribute `value` of the same tag, else what the element holds.
fn attribute_or_content(text: &str, from: usize) -> Option<Range<usize>> {
    let rest = &text[from..];
    let tag = &rest[..rest.floor_char_boundary(MAX_TAG)];
    let close = tag.find(['<', '>']).filter(|at| tag[*at..].starts_with('>'))?;
    if let Some(at) = rest[..close].find("value=") {
        let start = at + "value=".len();
        let quote = rest[start..].chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let end = rest[start + 1..close].find(quote)? + start + 1;
        return Some(from + start + 1..from + end);
    }
    let start = close + 1;
    let end = rest[start..].find('<').map_or(rest.len(), |at| start + at);
    (!rest[..close].ends_with('/')).then_some(from + start..from + end)
}

/// `name=value` and `name: value`, with or without quotes.
fn pairs(text: &str, out: &mut Vec<Edit>) {
    let mut from = 0;
    while let Some(at) = text[from..].find(['=', ':']).map(|at| from + at) {
        from = at + 1;
        let colon = text[at..].starts_with(':');
        if colon && text[from..].starts_with("//") {
            continue;
        }
        let Some((kind, whole_line)) = kind_before(&text[..at], colon) else {
            continue;
        };
        // `=>`, `==` and `:=` are one sign.
        let sign = text[from..].trim_start_matches(['=', '>']);
        let start = text.len() - sign.trim_start_matches([' ', '\t']).len();
        let range = value(text, start, kind, whole_line);
        from = from.max(range.end);
        let found = &text[range.clone()];
        if matches!(found, "null" | "none" | "None" | "true" | "false" | MASK) {
            continue;
        }
        if let Some(shown) = named(kind, found) {
            out.push((range, shown));
        }
    }
}

/// What the name before a sign says, and whether its value is the rest of the line (a header).
fn kind_before(before: &str, colon: bool) -> Option<(Kind, bool)> {
    let unquoted = before
        .trim_end_matches([' ', '\t'])
        .trim_end_matches("&quot;")
        .trim_end_matches(['"', '\''])
        .trim_end_matches('\\');
    let quoted = unquoted.len() < before.trim_end_matches([' ', '\t']).len();
    let word = last_word(unquoted)?;
    let header = colon && !quoted;
    let decoded = percent_encoding::percent_decode_str(word).decode_utf8_lossy();
    let local = decoded.rsplit(':').next().unwrap_or(&decoded);
    let kind = if header {
        name::of_header(local)
    } else {
        name::kind(local)
    };
    let line = |kind| {
        let flat = local.to_lowercase();
        header && (kind == Kind::SecretText || flat.contains("cookie") || flat.ends_with("-key"))
    };
    if let Some(kind) = kind {
        return Some((kind, line(kind)));
    }
    // "api key: ..." and "card number: ..."
    let rest = unquoted[..unquoted.len() - word.len()].strip_suffix([' ', '_', '-'])?;
    let two = format!("{} {word}", last_word(rest)?);
    let kind = name::kind(&two)?;
    // Each word for itself says nothing; a name that is no secret does not become one by its neighbour.
    name::kind(last_word(rest)?).is_none().then_some((kind, false))
}

/// The name that a text ends with.
fn last_word(text: &str) -> Option<&str> {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '[' | ']' | '%' | '$' | '@');
    let mut start = text.len();
    for (at, c) in text.char_indices().rev() {
        if !part(c) || text.len() - at > MAX_NAME {
            break;
        }
        start = at;
    }
    (start < text.len()).then(|| &text[start..])
}

/// The value that begins here; its quotes stay outside.
fn value(text: &str, start: usize, kind: Kind, whole_line: bool) -> Range<usize> {
    let rest = &text[start..];
    if let Some(quoted) = quoted(rest) {
        return start + quoted.start..start + quoted.end;
    }
    if rest.starts_with(['{', '[']) && kind == Kind::Secret {
        return start..start + nested_end(rest);
    }
    let line_end = rest.find(['\r', '\n']).unwrap_or(rest.len());
    if whole_line {
        return start..start + line_end;
    }
    let word_end = |from: usize| {
        let end = rest[from..].find(|c: char| c.is_whitespace() || ENDS.contains(&c));
        end.map_or(rest.len(), |end| from + end)
    };
    let mut end = word_end(0);
    let scheme = SCHEMES
        .iter()
        .any(|scheme| rest[..end].eq_ignore_ascii_case(scheme));
    if scheme && rest[end..].starts_with([' ', '+']) {
        end = word_end(end + 1);
    }
    if rest[..end].ends_with('(')
        && let Some(quoted) = quoted(&rest[end..])
    {
        // `Some("...")`
        return start + end + quoted.start..start + end + quoted.end;
    }
    if matches!(kind, Kind::Card | Kind::Account) {
        // Written in groups.
        while rest[end..].starts_with(' ') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            end = word_end(end + 1);
        }
    }
    start..start + end
}

/// What stands in the quotes with which a text begins: plain ones, escaped ones (`\"`), doubled ones as in CSV
/// (`""`), and XML's (`&quot;`).
fn quoted(rest: &str) -> Option<Range<usize>> {
    for double in ["&quot;", "\"\""] {
        let Some(inner) = rest.strip_prefix(double) else {
            continue;
        };
        // Two quotes may also be an empty value.
        let empty = inner.is_empty() || inner.starts_with(|c: char| c.is_whitespace() || ENDS.contains(&c));
        if double == "&quot;" || !empty {
            let length = inner.find(double).unwrap_or(inner.len());
            return Some(double.len()..double.len() + length);
        }
    }
    let slashes = rest.len() - rest.trim_start_matches('\\').len();
    let quote = rest[slashes..]
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\''))?;
    let open = slashes + 1;
    Some(open..quoted_end(rest, open, slashes, quote))
}

/// Where a quoted value ends: at the same quote with as many backslashes before it; where it was cut off, at the end.
fn quoted_end(rest: &str, open: usize, slashes: usize, quote: char) -> usize {
    let mut from = open;
    while let Some(at) = rest[from..].find(quote).map(|at| from + at) {
        let before = &rest[open..at];
        let found = before.len() - before.trim_end_matches('\\').len();
        from = at + quote.len_utf8();
        // SQL doubles a quote that is part of the text.
        let doubled = quote == '\'' && rest[from..].starts_with(quote);
        if doubled {
            from += quote.len_utf8();
        } else if found == slashes || (slashes == 0 && found.is_multiple_of(2)) {
            return at - slashes;
        }
    }
    rest.len()
}

/// Where an object or array ends that begins here, brackets in strings not told apart.
fn nested_end(rest: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in rest.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    rest.len()
}

/// Secrets that are recognised by themselves: behind `Bearer` and `Basic`, in a URL's user part, by their prefix.
fn words(text: &str, out: &mut Vec<Edit>) {
    let is_end =
        |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '<' | '>' | ')' | '&' | '\\');
    // Most texts are settled by a look.
    let marked = text.contains("://") || PREFIXES.iter().any(|prefix| text.contains(prefix));
    if !marked && !text.contains(char::is_whitespace) {
        return;
    }
    let mut from = 0;
    let mut after_scheme = false;
    while from < text.len() {
        let rest = &text[from..];
        let length = rest.find(is_end).unwrap_or(rest.len());
        let word = &rest[..length];
        if after_scheme && is_credential(word) {
            out.push((from..from + length, MASK.into()));
        } else if let Some(range) = prefixed(word).or_else(|| user_part(word)) {
            out.push((from + range.start..from + range.end, MASK.into()));
        }
        let scheme = word.rsplit(['=', ':']).next().unwrap_or(word);
        if length > 0 {
            after_scheme = scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("basic");
        }
        from += length + rest[length..].chars().next().map_or(0, char::len_utf8);
    }
}

/// Tells `Basic dXNlcjpw` from "basic check".
fn is_credential(word: &str) -> bool {
    word.len() >= 8 && (word.len() >= 20 || word.contains(|c: char| c.is_ascii_digit() || c == '='))
}

fn prefixed(word: &str) -> Option<Range<usize>> {
    PREFIXES.iter().find_map(|prefix| {
        let start = word.find(prefix)?;
        let fresh = !word[..start].ends_with(|c: char| c.is_ascii_alphanumeric());
        let tail = &word[start + prefix.len()..];
        let length = tail
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')))
            .unwrap_or(tail.len());
        let enough = length >= if *prefix == "eyJ" { 20 } else { 8 };
        (fresh && enough).then_some(start..start + prefix.len() + length)
    })
}

/// The password of `scheme://user:password@host`.
fn user_part(word: &str) -> Option<Range<usize>> {
    let start = word.find("://")? + 3;
    let authority = &word[start..];
    let authority = &authority[..authority.find(['/', '?', '#']).unwrap_or(authority.len())];
    let at = authority.rfind('@')?;
    let colon = authority[..at].find(':')?;
    (colon + 1 < at).then_some(start + colon + 1..start + at)
}

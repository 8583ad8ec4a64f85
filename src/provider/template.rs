//! The response that is stored for a payment that was found: a template of JSON with places in it.

use std::collections::BTreeMap;

use super::Payment;
use super::config::{ResponseConfig, wrong};
use crate::error::{Error, Result};
use crate::fingerprint::json::{Pointer, Value};
use crate::response::Response;

/// The response to store for a payment: `providers.NAME.response`.
#[derive(Debug, Clone)]
pub(super) struct ResponseTemplate {
    status_code: u16,
    body: Template,
}

impl ResponseTemplate {
    /// Checks the section, if there is one.
    pub(super) fn of(name: &str, config: Option<&ResponseConfig>) -> Result<Option<Self>> {
        let Some(ResponseConfig { status_code, body }) = config else {
            return Ok(None);
        };
        // Of a charge: neither a refusal nor a status that has no body (RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5).
        if !(200..400).contains(status_code) || matches!(status_code, 204 | 205 | 304) {
            return Err(wrong(
                name,
                "response.status_code",
                format!("is {status_code}; give 200 to 399, but not 204, 205 or 304"),
            ));
        }
        let body = Template::parse(body).map_err(|problem| wrong(name, "response.body", problem))?;
        Ok(Some(Self {
            status_code: *status_code,
            body,
        }))
    }

    /// The response for one payment.
    pub(super) fn fill(&self, name: &str, payment: &Payment) -> Result<Response> {
        let body = self.body.fill(&payment.0).map_err(|problem| Error::Local {
            what: format!("providers.{name}.response cannot be filled: {problem}"),
        })?;
        Response::new(self.status_code, body)?.with_header("content-type", "application/json")
    }
}

/// A checked body. `"{/id}"` takes the value at that JSON Pointer of the payment as it is (`{}` all of it);
/// within a longer string only strings, numbers and booleans can stand. `{{` and `}}` are braces.
#[derive(Debug, Clone)]
pub(super) struct Template(Node);

#[derive(Debug, Clone)]
enum Node {
    Literal(Value),
    Place(Pointer),
    Text(Vec<Part>),
    Array(Vec<Node>),
    Object(BTreeMap<String, Node>),
}

#[derive(Debug, Clone)]
enum Part {
    Literal(String),
    Place(Pointer),
}

impl Template {
    /// Reads a template; otherwise says where in it what is wrong.
    pub(super) fn parse(body: &serde_json::Value) -> std::result::Result<Self, String> {
        node(body, "").map(Self)
    }

    /// The body for one payment; otherwise what the payment lacks.
    pub(super) fn fill(&self, payment: &Value) -> std::result::Result<String, String> {
        Ok(fill(&self.0, payment)?.compact())
    }
}

fn node(value: &serde_json::Value, at: &str) -> std::result::Result<Node, String> {
    Ok(match value {
        serde_json::Value::Null => Node::Literal(Value::Null),
        serde_json::Value::Bool(bool) => Node::Literal(Value::Bool(*bool)),
        serde_json::Value::Number(number) => Node::Literal(Value::Number(number.to_string())),
        serde_json::Value::String(text) => string(text).map_err(|problem| format!("{at} {problem}"))?,
        serde_json::Value::Array(elements) => {
            let nodes = elements
                .iter()
                .enumerate()
                .map(|(i, element)| node(element, &format!("{at}[{i}]")));
            Node::Array(nodes.collect::<std::result::Result<_, _>>()?)
        }
        serde_json::Value::Object(members) => {
            // This is how the toml crate hands over a date, which JSON does not have.
            if members.keys().any(|name| name.starts_with("$__toml_private")) {
                return Err(format!("{at} is a date; write it as a string"));
            }
            let nodes = members
                .iter()
                .map(|(name, value)| Ok((name.clone(), node(value, &format!("{at}.{name}"))?)));
            Node::Object(nodes.collect::<std::result::Result<_, String>>()?)
        }
    })
}

fn string(text: &str) -> std::result::Result<Node, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(brace) = rest.find(['{', '}']) {
        literal.push_str(&rest[..brace]);
        rest = &rest[brace..];
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            literal.push_str(&rest[..1]);
            rest = after;
            continue;
        }
        let Some((pointer, after)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) else {
            return Err(format!(
                "is {text:?}, which has a brace without its partner; write {{{{ or }}}} for a brace"
            ));
        };
        let pointer = Pointer::parse(pointer).map_err(|problem| format!("has a place that {problem}"))?;
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        parts.push(Part::Place(pointer));
        rest = after;
    }
    literal.push_str(rest);
    if parts.is_empty() {
        return Ok(Node::Literal(Value::String(literal)));
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    match parts.as_slice() {
        [Part::Place(pointer)] => Ok(Node::Place(pointer.clone())),
        _ => Ok(Node::Text(parts)),
    }
}

fn fill(node: &Node, payment: &Value) -> std::result::Result<Value, String> {
    let find = |pointer: &Pointer| {
        pointer
            .find(payment)
            .ok_or_else(|| format!("the payment has nothing at {:?}", pointer.to_string()))
    };
    Ok(match node {
        Node::Literal(value) => value.clone(),
        Node::Place(pointer) => find(pointer)?.clone(),
        Node::Text(parts) => {
            let mut text = String::new();
            for part in parts {
                match part {
                    Part::Literal(literal) => text.push_str(literal),
                    Part::Place(pointer) => match find(pointer)?.scalar_text() {
                        Some(scalar) => text.push_str(&scalar),
                        None => {
                            return Err(format!(
                                "what the payment has at {pointer} cannot stand within a string"
                            ));
                        }
                    },
                }
            }
            Value::String(text)
        }
        Node::Array(nodes) => Value::Array(
            nodes
                .iter()
                .map(|node| fill(node, payment))
                .collect::<std::result::Result<_, _>>()?,
        ),
        Node::Object(nodes) => {
            let members = nodes
                .iter()
                .map(|(name, node)| Ok((name.clone(), fill(node, payment)?)));
            Value::Object(members.collect::<std::result::Result<_, String>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::json;

    fn filled(template: &str, payment: &str) -> std::result::Result<String, String> {
        let template = Template::parse(&serde_json::from_str(template).unwrap())?;
        template.fill(&json::parse(payment.as_bytes()).unwrap())
    }

    #[test]
    fn places_take_values_digit_for_digit() {
        let payment = r#"{"id":"ch_1","amount":10.50,"big":9007199254740993,"o":{"a/b":[null,true]}}"#;
        for (template, expected) in [
            (r#"{"charge_id":"{/id}","n":1}"#, r#"{"charge_id":"ch_1","n":1}"#),
            (
                r#"["{/amount}","{/big}","{/o}"]"#,
                r#"[10.50,9007199254740993,{"a/b":[null,true]}]"#,
            ),
            (
                r#""id={/id} of {/amount}, {{{/o/a~1b/1}}}""#,
                r#""id=ch_1 of 10.50, {true}""#,
            ),
            (r#""plain""#, r#""plain""#),
            ("null", "null"),
        ] {
            assert_eq!(filled(template, payment).unwrap(), expected);
        }
        assert!(
            filled(r#""{}""#, payment)
                .unwrap()
                .contains("\"big\":9007199254740993")
        );
    }

    #[test]
    fn what_cannot_be_filled_is_said() {
        for (template, problem) in [
            (r#"{"a":["{/id"]}"#, ".a[0] is \"{/id\""),
            (r#""}""#, "brace"),
            (r#""{id}""#, "does not begin with /"),
            (r#""{/absent}""#, "nothing at \"/absent\""),
            (r#""x{/null}""#, "cannot stand within"),
        ] {
            let error = filled(template, r#"{"id":1,"null":null}"#).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}

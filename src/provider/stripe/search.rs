//! The text of a search.

/// A clause of the search language (`docs.stripe.com/search`): the value stands in quotes, and a quote in it is
/// escaped with a backslash. How a backslash itself is read is not said there; an order id that has one is not
/// searched for.
///
/// What is found is compared by us again: the search takes a text for a match that holds the words, in any case.
pub(super) fn query(field: &str, order_id: &str) -> Option<String> {
    let is_plain = !order_id.contains('\\') && !order_id.chars().any(char::is_control);
    is_plain.then(|| format!("metadata[\"{field}\"]:\"{}\"", order_id.replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::query;

    #[test]
    fn an_order_id_stays_within_its_quotes() {
        for (order, expected) in [
            ("order-1", Some(r#"metadata["order_id"]:"order-1""#)),
            (
                r#"x" OR status:"succeeded"#,
                Some(r#"metadata["order_id"]:"x\" OR status:\"succeeded""#),
            ),
            ("it's", Some(r#"metadata["order_id"]:"it's""#)),
            (r"x\", None),
            (r#"x\" OR amount>0"#, None),
            ("x\ny", None),
        ] {
            assert_eq!(query("order_id", order).as_deref(), expected, "{order}");
        }
    }
}

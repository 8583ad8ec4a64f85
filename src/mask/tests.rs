//! What is masked, what is not, and that nothing else changes.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

fn with(pointers: &[&str]) -> Masker {
    Masker::new(pointers.iter().map(|pointer| pointer.parse().unwrap()))
}

#[track_caller]
fn masked(input: &str, expected: &str) {
    assert_eq!(text(input), expected, "of {input}");
    if serde_json::from_str::<&RawValue>(input).is_ok() {
        serde_json::from_str::<&RawValue>(expected).unwrap();
        assert_eq!(Masker::default().body(input), expected);
    }
}

#[track_caller]
fn untouched(input: &str) {
    masked(input, input);
}

#[test]
fn card_numbers_in_every_spelling() {
    masked("card 4242 4242 4242 4242.", "card 4242 42** **** 4242.");
    masked("4242.4242.4242.4242", "4242.42**.****.4242");
    masked("4242-4242 4242 - 4242", "4242-42** **** - 4242");
    masked("378282246310005,", "378282*****0005,");
    masked("3782 822463 10005", "3782 82**** *0005");
    // What follows it does not hide it.
    masked("4242 4242 4242 4242 123 12", "4242 42** **** 4242 123 12");
    masked("n=12 4242424242424242", "n=12 424242******4242");
    masked("ca4242424242424242rd", "ca424242******4242rd");
    masked("card=4242+4242+4242+4242&x=1", "card=4242+42**+****+4242&x=1");
    masked("n%3A4242%204242%204242%204242", "n%3A4242%2042**%20****%204242");
    masked(
        "%7B%22n%22%3A%224242424242424242%22%7D",
        "%7B%22n%22%3A%22424242******4242%22%7D",
    );
    masked("100%4242424242424242", "100%424242******4242");
    masked("%34242424242424242 x", "%3424242******4242 x");
    masked(
        r"cut: {\u00224242424242424242\u0022",
        r"cut: {\u0022424242******4242\u0022",
    );
    masked(r"got \x224242424242424242\x22", r"got \x22424242******4242\x22");
    masked("４２４２４２４２４２４２４２４２", "４２４２４２******４２４２");
    masked(
        "4242\u{200b}4242\u{a0}4242\u{2011}4242",
        "4242\u{200b}42**\u{a0}****\u{2011}4242",
    );
    untouched("order 4242424242424241");
    untouched("id 000000004242424242424242 of 24 digits");
    untouched("2026-11-29T10:00:00.123456Z");
    untouched("424242******4242");
}

#[test]
fn card_numbers_in_json() {
    masked(r#"{"n": 4242424242424242}"#, r#"{"n": "424242******4242"}"#);
    masked("\"4242424242424242\"", r#""424242******4242""#);
    assert_eq!(
        Masker::default().body("4242424242424242\n"),
        r#""424242******4242""#
    );
    assert_eq!(
        Masker::default().body("pay 4242424242424242\n"),
        "pay 424242******4242\n"
    );
    masked(r#"["\u0034242 4242 4242 4242"]"#, r#"["4242 42** **** 4242"]"#);
    masked(r#"{"4242424242424242":1}"#, r#"{"424242******4242":1}"#);
    masked(
        r#"{"raw":"{\"n\":4242424242424242, \"x\": 1.50}"}"#,
        r#"{"raw":"{\"n\":\"424242******4242\", \"x\": 1.50}"}"#,
    );
    // By its name, and where an object describes a card, without a check digit.
    masked(
        r#"{"card_number":"4242424242424241"}"#,
        r#"{"card_number":"***"}"#,
    );
    masked(
        r#"{"card":{"number":"4242424242424241"}}"#,
        r#"{"card":{"number":"***"}}"#,
    );
    masked(
        r#"{"cards":[{"number":4242424242424241}]}"#,
        r#"{"cards":[{"number":"***"}]}"#,
    );
    untouched(r#"{"number":"4242424242424241","pan":"424242******4241","last4":"4242"}"#);
}

#[test]
fn secret_names_in_json() {
    masked(
        r#"{"a": [{"client-secret":"x"}], "apiKey":{"id":1}, "PIN": 1234, "cvc":"123"}"#,
        r#"{"a": [{"client-secret":"***"}], "apiKey":"***", "PIN": "***", "cvc":"***"}"#,
    );
    masked(r#"{"pass\u0077ord":"x\"y"}"#, r#"{"pass\u0077ord":"***"}"#);
    masked(
        r#"[["Set-Cookie","a=b"],["x-merchant-key","k"]]"#,
        r#"[["Set-Cookie","***"],["x-merchant-key","***"]]"#,
    );
    masked(
        r#"[{"name":"Authorization","value":"x"},{"value":[1],"x":0,"name":"pin"}]"#,
        r#"[{"name":"Authorization","value":"***"},{"value":"***","x":0,"name":"pin"}]"#,
    );
    masked(r#"{"iban":"DE89370400440532013000"}"#, r#"{"iban":"***3000"}"#);
    masked(
        r#"{"note":"password=hunter2 ok"}"#,
        r#"{"note":"password=*** ok"}"#,
    );
    untouched(
        r#"{"token":null,"secret":true,"password":"","pin_required":true,"shipping":"x","spinner":1,"company":2}"#,
    );
    masked(r#"{"Authorization":["x"]}"#, r#"{"Authorization":"***"}"#);
    untouched(r#"{"cvc_check":"pass","cvv2_result":"M","token_type":"bearer","password_required":"yes"}"#);
    untouched(r#"{"authorization":{"id":"au_1"},"idempotency_key":"k","lease_token":"t","token_type":"x"}"#);
}

#[test]
fn what_is_not_masked_keeps_every_byte() {
    let odd = "{\"a\" : 1.10, \"a\":1e400,\r\n \"token\": \"t\", \"b\": 12345678901234567890123456789 , \"\\ud800\":\"\\u00e9\"}\n";
    assert_eq!(text(odd), odd.replace("\"t\"", "\"***\""));
    assert_eq!(text("\u{feff}{\"pin\":1}"), "\u{feff}{\"pin\":\"***\"}");
}

#[test]
fn text_that_is_no_json() {
    masked(
        "a=1&client_secret=x%20y&card%5Bcvc%5D=123&b=2",
        "a=1&client_secret=***&card%5Bcvc%5D=***&b=2",
    );
    masked(
        "<r><ns:password a=\"b\">x&amp;y</ns:password><ok/></r>",
        "<r><ns:password a=\"b\">***</ns:password><ok/></r>",
    );
    masked("<cvc/><pin>12</pin>", "<cvc/><pin>***</pin>");
    masked("<a password=\"x y\" b='1'>", "<a password=\"***\" b='1'>");
    masked(
        "Authorization: Bearer a.b c\r\nHost: x",
        "Authorization: ***\r\nHost: x",
    );
    masked(
        "x-api-key: abc\nX-Idempotency-Key: abc",
        "x-api-key: ***\nX-Idempotency-Key: abc",
    );
    masked("Set-Cookie: a=b; c=d", "Set-Cookie: ***");
    masked("sent Bearer abcdefgh1, got 401", "sent Bearer ***, got 401");
    masked("the API key: abc was refused", "the API key: *** was refused");
    masked("no such key sk_live_0123456789abcdef", "no such key ***");
    masked("at postgres://u:pa@ss@db/x", "at postgres://u:***@db/x");
    masked("iban: DE89 3704 0044 0532 0130 00", "iban: ***3000");
    masked(
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----",
    );
    // JSON that was cut off, and JSON inside a sentence, spelled once and twice.
    masked(
        r#"400 {"client_secret":"hu\"sh","a":1"#,
        r#"400 {"client_secret":"***","a":1"#,
    );
    masked(
        r#"got {"secret":{"a":[1]},"b":2} x"#,
        r#"got {"secret":***,"b":2} x"#,
    );
    masked(
        r#"x "{\"pin\":\"12\",\"b\":1}" y"#,
        r#"x "{\"pin\":\"***\",\"b\":1}" y"#,
    );
    masked(r#"{"password":"abc"#, r#"{"password":"***"#);
    masked(
        r#"Login { user: "u", password: Some("x y") }"#,
        r#"Login { user: "u", password: Some("***") }"#,
    );
    masked("insert (password = 'it''s', a)", "insert (password = '***', a)");
    masked(
        r#""{""pin"":""12"",""a"":""""}""#,
        r#""{""pin"":""***"",""a"":""""}""#,
    );
    masked(r#"pin="" a="b""#, r#"pin="" a="b""#);
    masked(
        "<v>{&quot;pin&quot;:&quot;1;2&quot;}</v>",
        "<v>{&quot;pin&quot;:&quot;***&quot;}</v>",
    );
    masked(
        "--b\r\nContent-Disposition: form-data; name=\"card[cvc]\"\r\n\r\n12 3\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--",
        "--b\r\nContent-Disposition: form-data; name=\"card[cvc]\"\r\n\r\n***\r\n--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--b--",
    );
    masked(
        "<input type='text' name='pin' value='12 3'><input name=\"a\" value=\"b\"><p name=\"token\">x y</p>",
        "<input type='text' name='pin' value='***'><input name=\"a\" value=\"b\"><p name=\"token\">***</p>",
    );
    masked("state eyJhIjoiYiIsImMiOiJkIn0 of it", "state *** of it");
    untouched("the token was lost; basic check of the card: fine");
    untouched("http://127.0.0.1:80/v1?merchant_order_id=order-1, HTTP 200, one payment");
    untouched("expired at 10:00: no result");
}

#[test]
fn pointers_hide_what_they_name() {
    let body =
        r#"{"card":{"a":1},"customer":{"email":"x","id":null},"items":[{"sku":1},{"sku":2}],"a/b":{"~":3}}"#;
    let masker = with(&["/card", "/customer/*", "/items/*/sku", "/a~1b/~0", "/absent/0"]);
    assert_eq!(
        masker.text(body),
        r#"{"card":"***","customer":{"email":"***","id":"***"},"items":[{"sku":"***"},{"sku":"***"}],"a/b":{"~":"***"}}"#
    );
    assert_eq!(
        with(&["/items/1"]).text(r#"{"items":[1,2]}"#),
        r#"{"items":[1,"***"]}"#
    );
    assert_eq!(with(&["/1", "/"]).text(r#"[1,{"":2}]"#), r#"[1,"***"]"#);
    for bad in ["", "card", "/a~", "/a~2"] {
        assert!(bad.parse::<Pointer>().is_err(), "{bad}");
    }
}

#[test]
fn identities_of_our_own_stay_and_pointers_are_for_bodies() {
    let event = RawValue::from_string(
        r#"{"order_id":"4242424242424242","reference":4242424242424242,"lease_token":"t","last_error":"pan 4242424242424242","evidence":{"reference":"4242424242424242","token":"x"}}"#
            .to_owned(),
    )
    .unwrap();
    assert_eq!(
        with(&["/order_id"]).own_json(&event).get(),
        r#"{"order_id":"4242424242424242","reference":4242424242424242,"lease_token":"t","last_error":"pan 424242******4242","evidence":{"reference":"4242424242424242","token":"***"}}"#
    );
}

#[test]
fn headers_are_masked_by_their_names() {
    let masker = Masker::default();
    for name in ["Authorization", "Set-Cookie", "X-Merchant-Key", "x-auth-token"] {
        assert_eq!(masker.header(name, "abc"), "***", "{name}");
    }
    for name in ["Idempotency-Key", "Content-Type", "Retry-After"] {
        assert_eq!(masker.header(name, "abc"), "abc", "{name}");
    }
    assert_eq!(masker.header("X-Card", "4242424242424242"), "424242******4242");
}

#[test]
fn depth_and_size_are_no_danger() {
    let depth = 100_000;
    let deep = format!("{}{{\"pin\":1}}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(text(&deep).contains(r#"{"pin":"***"}"#));
    let deep = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    assert_eq!(with(&["/a/*/a"]).text(&deep), r#"{"a":{"a":{"a":"***"}}}"#);
    // Each of these would be slow if anything looked back or ahead without a bound.
    for piece in [
        "token=",
        "<pin>",
        "\"pin\":{",
        "4242 ",
        "{\"value\":1,\"a\":",
        "\\\"",
        "Bearer ",
        "-----END",
        "[\"pin\",",
        "name=\"pin\"",
        "form-data; name=\"pin\" ",
        "%22",
    ] {
        let long = piece.repeat((1 << 20) / piece.len());
        let started = std::time::Instant::now();
        let _shown = text(&long);
        assert!(
            started.elapsed().as_secs() < 60,
            "{piece}: {:?}",
            started.elapsed()
        );
    }
    let mut nested = "4242424242424242".to_owned();
    for _ in 0..12 {
        nested = serde_json::Value::from(nested).to_string();
    }
    assert!(!text(&nested).contains("4242424242424242"));
}

/// Whether somewhere 13 to 19 digits, next to each other or with single separators, pass the Luhn check.
fn has_card(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let separator = |c: char| matches!(c, ' ' | '-' | '.');
    (0..chars.len()).any(|start| {
        if !chars[start].is_ascii_digit() || (start > 0 && chars[start - 1].is_ascii_digit()) {
            return false;
        }
        let mut digits = Vec::new();
        for at in start..chars.len() {
            match chars[at].to_digit(10) {
                Some(value) => digits.push(value),
                None if separator(chars[at]) && chars[at - 1].is_ascii_digit() => continue,
                None => return false,
            }
            let ends = !chars.get(at + 1).is_some_and(char::is_ascii_digit);
            let sum: u32 = digits
                .iter()
                .rev()
                .enumerate()
                .map(|(i, d)| if i % 2 == 0 { *d } else { d * 2 / 10 + d * 2 % 10 })
                .sum();
            if ends && (13..=19).contains(&digits.len()) && sum.is_multiple_of(10) {
                return true;
            }
        }
        false
    })
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let name = "(card|number|token|pin|a|name|value|[0-9]{12,17}|[a-z\"\\\\]{0,4})";
    let leaf = prop_oneof![
        any::<u64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
        "([0-9]{1,17}[ .-]?){0,4}".prop_map(serde_json::Value::from),
        "\\PC{0,12}".prop_map(serde_json::Value::from),
        "(token|authorization|a)".prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            proptest::collection::btree_map(name, inner, 0..5)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_card_number_is_left(input in "([0-9]{1,19}[ .x-]{0,2}){0,12}") {
        let shown = text(&input).into_owned();
        prop_assert!(!has_card(&shown), "{shown}");
        // Nothing but digits has changed, and what is masked stays masked.
        for (before, after) in input.chars().zip(shown.chars()) {
            prop_assert!(before == after || (after == '*' && before.is_ascii_digit()));
        }
    }

    #[test]
    fn json_stays_json_and_keeps_its_shape(value in json(), pretty in any::<bool>()) {
        let input = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let shown = with(&["/a", "/*/card"]).body(&input).into_owned();
        prop_assert!(serde_json::from_str::<serde_json::Value>(&shown).is_ok(), "{shown}");
        prop_assert!(!has_card(&shown), "{shown}");
        prop_assert_eq!(with(&["/a", "/*/card"]).text(&shown), shown.as_str());
    }

    #[test]
    fn any_text_is_survived(input in "(\\PC|[\r\n\t\"'\\\\{}<>=:&%]|token|pin|Bearer |://|@|-----|PRIVATE KEY-----|[0-9]{4}){0,40}") {
        let shown = text(&input).into_owned();
        prop_assert!(!has_card(&shown), "{shown}");
    }
}

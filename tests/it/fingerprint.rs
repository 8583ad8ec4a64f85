//! The canonical form against Python, against random spellings, and against bodies that must be refused.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test helper may panic")]

mod spelling;

use std::io::Write as _;
use std::process::{Command, Stdio};

use idemctl::fingerprint::{Fields, Fingerprint, MAX_BYTES, canonical, canonical_fields};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

use spelling::{Model, Speller, model, whole_number_model};

/// Runs `vectors/make.py` with the machine's Python.
pub(crate) fn python(what: &str, stdin: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/vectors/make.py");
    let mut child = Command::new("python3")
        .args([script, what])
        .env("PYTHONIOENCODING", "utf-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 must be installed");
    // The script reads all of its input before it writes.
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[derive(serde::Deserialize)]
struct Vector {
    body: String,
    canonical: String,
    sha256: String,
}

#[test]
fn golden_vectors_are_what_python_computes() {
    let kept = include_str!("vectors/fingerprints.jsonl");
    assert_eq!(kept, python("fingerprints", ""));
    assert!(kept.lines().count() >= 20);
    for line in kept.lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        assert_eq!(canonical(vector.body.as_bytes()).unwrap(), vector.canonical);
        assert_eq!(
            Fingerprint::of_json(vector.body.as_bytes()).unwrap().as_str(),
            vector.sha256
        );
    }
}

#[test]
fn random_bodies_of_whole_numbers_hash_as_in_python() {
    let mut runner = TestRunner::deterministic();
    let bodies: Vec<String> = (0..400)
        .map(|seed| {
            let model = whole_number_model().new_tree(&mut runner).unwrap().current();
            Speller::new(seed).one_line().whole_numbers().spell(&model)
        })
        .collect();
    let ours: Vec<_> = bodies
        .iter()
        .map(|body| Fingerprint::of_json(body.as_bytes()).unwrap().to_string())
        .collect();
    let theirs = python("digests", &bodies.join("\n"));
    assert_eq!(ours, theirs.lines().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_canonical_form_is_its_own_canonical_form(model in model(), seed: u64) {
        let once = canonical(Speller::new(seed).spell(&model).as_bytes()).unwrap();
        prop_assert_eq!(&canonical(once.as_bytes()).unwrap(), &once);
        prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&once).is_ok());
    }

    #[test]
    fn spelling_does_not_matter(model in model(), one: u64, other: u64) {
        let one = Speller::new(one).spell(&model);
        let other = Speller::new(other).spell(&model);
        prop_assert_eq!(canonical(one.as_bytes()).unwrap(), canonical(other.as_bytes()).unwrap());
    }

    #[test]
    fn different_values_differ(a in model(), b in model(), change: u64, seed: u64) {
        let changed = a.changed(change);
        let [a_text, b_text, changed_text] =
            [&a, &b, &changed].map(|m| canonical(Speller::new(seed).spell(m).as_bytes()).unwrap());
        prop_assert_eq!(a == b, a_text == b_text);
        prop_assert_ne!(a_text, changed_text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        // Whatever we read, serde_json reads too.
        if canonical(&bytes).is_ok() {
            prop_assert!(serde_json::from_slice::<Box<serde_json::value::RawValue>>(&bytes).is_ok());
        }
    }

    #[test]
    fn unselected_fields_do_not_matter(kept in model(), one in model(), other in model(), seed: u64) {
        let fields = Fields::new(["/a~1b/m~0n"]).unwrap();
        let body = |rest: &Model| {
            let wrap = |members: Vec<(&str, Model)>| {
                Model::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            };
            let inner = wrap(vec![("m~n", kept.clone()), ("sent_at", rest.clone())]);
            Speller::new(seed).spell(&wrap(vec![("a/b", inner), ("attempt", rest.clone())]))
        };
        let of = |rest: &Model| canonical_fields(body(rest).as_bytes(), &fields).unwrap();
        let expected = canonical(format!("{{\"a/b\":{{\"m~n\":{}}}}}", Speller::new(seed).spell(&kept)).as_bytes());
        prop_assert_eq!(of(&one), of(&other));
        prop_assert_eq!(of(&one), expected.unwrap());
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_has_no_one_meaning_is_refused_with_its_place() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n)).into_bytes();
    assert!(canonical(&deep(128)).is_ok());
    let cases: &[(&[u8], &str, &str)] = &[
        (
            b"{\"a\":1,\"b\":{\"x/y\":1,\"x\\u002fy\":2}}",
            "same name twice",
            "byte 20 (line 1, column 21), JSON Pointer \"/b/x~1y\"",
        ),
        (
            b"{\"a\":\n [1, NaN]}",
            "NaN",
            "byte 11 (line 2, column 6), JSON Pointer \"/a/1\"",
        ),
        (
            b"-Infinity",
            "Infinity",
            "byte 0 (line 1, column 1), JSON Pointer \"\"",
        ),
        (
            "{\"é\":\"\\ud800x\"}".as_bytes(),
            "lone surrogate",
            "byte 7 (line 1, column 7), JSON Pointer \"/é\"",
        ),
        (b"\"\\udc00\"", "lone surrogate", "byte 1 "),
        (b"\"\\ud800\\ud800\"", "lone surrogate", "byte 1 "),
        (b"\"\\ud83d\\u00\"", "four hex digits", "byte 1 "),
        (
            b"[\"a\xff\"]",
            "not UTF-8",
            "byte 3 (line 1, column 4), JSON Pointer \"/0\"",
        ),
        (b"\"\xed\xa0\x80\"", "not UTF-8", "byte 1 "),
        (b"\"\xc0\x80\"", "not UTF-8", "byte 1 "),
        (b"[1e10000]", "exponent over 9999", "byte 1 "),
        (b"\xef\xbb\xbf{}", "byte order mark", "byte 0 "),
        (b"", "where a value is expected", "byte 0 "),
        (b" \n ", "where a value is expected", "byte 3 (line 2, column 2)"),
        (b"{\"a\":1", "neither a comma", "byte 6 "),
        (b"{\"a\":1,}", "no name in quotes", "byte 7 "),
        (b"[1,]", "no JSON value", "byte 3 "),
        (b"{a:1}", "no name in quotes", "byte 1 "),
        (b"{\"a\" 1}", "no colon", "byte 5 "),
        (b"\"abc", "ends within the string", "byte 0 "),
        (b"\"a\nb\"", "control character", "byte 2 "),
        (b"\"\\x\"", "unknown escape", "byte 1 "),
        (b"\"\\", "ends within the escape", "byte 1 "),
        (b"01", "zero in front", "byte 0 "),
        (b"-", "without a digit", "byte 0 "),
        (b".5", "no JSON value", "byte 0 "),
        (b"1.", "after its point", "byte 2 "),
        (b"1e+", "in its exponent", "byte 3 "),
        (b"+1", "no JSON value", "byte 0 "),
        (b"1 2", "goes on after", "byte 2 "),
        (b"{} //x", "goes on after", "byte 3 "),
        (b"nul", "no JSON value", "byte 0 "),
        (b"truefalse", "goes on after", "byte 4 "),
        (b"\xc2\xa01", "no JSON value", "byte 0 "),
    ];
    for (body, problem, place) in cases {
        let error = canonical(body).unwrap_err().to_string();
        assert!(
            error.contains(problem) && error.contains(place),
            "{body:?}: {error}"
        );
    }
    let error = canonical(&deep(129)).unwrap_err().to_string();
    assert!(
        error.contains("deeper than 128") && error.contains("byte 128") && error.ends_with("…\""),
        "{error}"
    );
    // A million brackets must not exhaust the stack either.
    assert!(
        canonical("[".repeat(MAX_BYTES).as_bytes())
            .unwrap_err()
            .to_string()
            .contains("deeper")
    );
    let long = |n: usize| format!("\"{}\"", "x".repeat(n - 2));
    assert!(canonical(long(MAX_BYTES).as_bytes()).is_ok());
    assert!(
        canonical(long(MAX_BYTES + 1).as_bytes())
            .unwrap_err()
            .to_string()
            .contains("1048577 bytes")
    );
    let error = canonical(b"{\"\\u001b]0;x\":nul}").unwrap_err().to_string();
    assert!(
        !error.contains('\u{1b}'),
        "no terminal commands in messages: {error}"
    );
}

#[test]
fn fields_keep_their_places() {
    let body = br#"{"amount":10.50,"note":null,"payee":{"iban":"X","name":"Y"},"items":[{"sku":1,"q":2},{"sku":3},4],"sent":1}"#;
    let cases: &[(&[&str], &str)] = &[
        (
            &["/amount", "/payee/iban"],
            r#"{"amount":10.5,"payee":{"iban":"X"}}"#,
        ),
        (&["/note"], r#"{"note":null}"#),
        (&["/amount", "/absent", "/payee/absent", "/amount/below"], ""),
        (&["/items/1/sku"], r#"{"items":[null,{"sku":3}]}"#),
        (&["/items/0/sku", "/items/9"], r#"{"items":[{"sku":1}]}"#),
        (
            &["/amount", "/items/-", "/items/00", "/items/01"],
            r#"{"amount":10.5}"#,
        ),
        (&["/items"], r#"{"items":[{"q":2,"sku":1},{"sku":3},4]}"#),
    ];
    for (pointers, expected) in cases {
        match Fields::new(pointers.iter().copied()) {
            Ok(fields) => {
                assert_eq!(canonical_fields(body, &fields).unwrap(), *expected);
                let digest = Fingerprint::of_json(expected.as_bytes()).unwrap();
                assert_eq!(Fingerprint::of_json_fields(body, &fields).unwrap(), digest);
            }
            Err(error) => assert!(expected.is_empty(), "{error}"),
        }
    }
    let whole = Fields::new([""]).unwrap();
    assert_eq!(canonical_fields(body, &whole).unwrap(), canonical(body).unwrap());
    let absent = Fields::new(["/ammount", "/payee/absent", "/amount/below"]).unwrap();
    let error = canonical_fields(body, &absent).unwrap_err().to_string();
    assert!(error.contains("none of the fields /ammount"), "{error}");
}

#[test]
fn pointers_are_checked() {
    for (pointers, problem) in [
        (vec![], "at least one"),
        (vec!["amount"], "not begin with /"),
        (vec!["/a~"], "~0"),
        (vec!["/a~2"], "~0"),
        (vec!["/a", "/a"], "twice"),
        (vec!["/a", "/a/b"], "within another"),
        (vec!["/a/b", "/a"], "within another"),
        (vec!["/a", ""], "within another"),
        (vec!["", "/a"], "within another"),
    ] {
        let error = Fields::new(pointers).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    let fields = Fields::new(["/~01", "//x", "/ "]).unwrap();
    assert_eq!(
        canonical_fields(br#"{"~1":1,"":{"x":2}," ":3,"/":4}"#, &fields).unwrap(),
        r#"{"":{"x":2}," ":3,"~1":1}"#
    );
}

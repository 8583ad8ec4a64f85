//! Bytes per second of the fingerprint, beside what no fingerprint can do without: parsing the body, and hashing it.
//!
//! `cargo bench --bench fingerprint`; `-- --test` runs each once.

use std::fmt::Write as _;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use idemctl::fingerprint::Fingerprint;
use sha2::{Digest, Sha256};

/// About so many bytes: a payment, an order with many lines, and nearly as much as is allowed.
const SIZES: [usize; 3] = [200, 20_000, 1_000_000];

fn main() {
    divan::main();
}

/// A payment with so many lines that it has at least this size: strings with escapes, numbers, nesting.
fn body(size: usize) -> String {
    let mut body = r#"{"currency":"EUR","amount":1250.50,"order":"order-1","lines":["#.to_owned();
    let mut n = 0;
    while body.len() < size - 60 {
        let comma = if n > 0 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            body,
            r#"{comma}{{"sku":"sku-{n}","name":"Grüße \"A\"","quantity":{},"price":{}.{:02}}}"#,
            n % 7 + 1,
            n * 13 % 1000,
            n % 100
        );
        n += 1;
    }
    body.push_str(r#"],"customer":{"id":77,"email":"a@example.org"}}"#);
    body
}

#[divan::bench(args = SIZES)]
fn fingerprint(bencher: Bencher<'_, '_>, size: usize) {
    let body = body(size);
    bencher
        .counter(BytesCount::of_str(&body))
        .bench(|| Fingerprint::of_json(black_box(body.as_bytes())));
}

#[divan::bench(args = SIZES)]
fn serde_json_parse(bencher: Bencher<'_, '_>, size: usize) {
    let body = body(size);
    bencher
        .counter(BytesCount::of_str(&body))
        .bench(|| serde_json::from_str::<serde_json::Value>(black_box(&body)));
}

#[divan::bench(args = SIZES)]
fn sha256(bencher: Bencher<'_, '_>, size: usize) {
    let body = body(size);
    bencher
        .counter(BytesCount::of_str(&body))
        .bench(|| Sha256::digest(black_box(body.as_bytes())));
}

//! The files of `migrations/` are numbered without gaps and never change again.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Each file and its SHA-256. A new migration is added at the end; a line that stands here is never changed,
/// because databases out there have recorded it.
const RELEASED: &[(&str, &str)] = &[
    (
        "0001_migrations.sql",
        "1d85c8181965138b6b62befb6e892629236ff1fc559415d160c89ef0d79bea9b",
    ),
    (
        "0002_keys.sql",
        "0d949e96069ff053747779848e98cb2482827caca8066b7fd325ba168631f7d0",
    ),
    (
        "0003_events.sql",
        "b6e9829c3f78b7b7506bfa9a220915d999d643e45a406c76ccc344b3a65206d6",
    ),
    (
        "0004_created_at_index.sql",
        "3b788ef79deee28246c2536e9a17706098eb9d023198187ea95f661a9efd49ed",
    ),
    (
        "0005_expired_index.sql",
        "dd776e5e7e1d9149a877748bc48ea379e690d9ffe1c2a59b4b5b0495ca38a041",
    ),
    (
        "0006_jobs.sql",
        "dc0bb46969e52722422b0dd8d3774622c6df66ebd6c1cf767602179ff3db4355",
    ),
];

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

#[test]
fn migrations_are_append_only() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let listed: Vec<&str> = RELEASED.iter().map(|(file, _)| *file).collect();
    assert_eq!(files, listed, "a file that is not listed, or the other way round");
    for (position, (file, expected)) in RELEASED.iter().enumerate() {
        assert!(
            file.starts_with(&format!("{:04}_", position + 1)),
            "{file} is out of order"
        );
        let bytes = std::fs::read(dir.join(file)).unwrap();
        assert_eq!(
            sha256(&bytes),
            *expected,
            "{file} was changed; write a new migration instead"
        );
        let text = String::from_utf8(bytes).unwrap();
        for part in ["-- Why: ", "-- Lock: ", "-- Time: "] {
            assert!(
                text.lines().any(|line| line.starts_with(part)),
                "{file} has no line {part:?}"
            );
        }
    }
}

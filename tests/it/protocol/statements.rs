//! Every statement that is sent: registered, named, portable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;

use super::Table;

/// Comments and blanks apart, in lower case.
fn bare(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.split("--").next().unwrap())
        .collect();
    let blanks = Regex::new(r"\s+").unwrap();
    blanks
        .replace_all(&lines.join(" ").to_lowercase(), " ")
        .into_owned()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// What is wrong with a statement's text; `None` when nothing is.
fn wrong(name: &str, text: &str) -> Option<String> {
    if text.lines().next() != Some(&format!("-- idemctl:{name}")) {
        return Some("the first line does not name it".to_owned());
    }
    let sql = bare(text);
    for word in [
        r"\bctid\b",
        r"\bxmax\b",
        r"\bpg_(try_)?advisory_(un)?lock",
        // Citus 13 writes `case x when y` for its workers as `case x when (x = y)`: "text = boolean".
        r"\bcase [^ ]+ when\b",
        r"\block table\b",
    ] {
        if Regex::new(word).unwrap().is_match(&sql) {
            return Some(format!("it has {word}"));
        }
    }
    let conflict = Regex::new(r"on conflict.*?do update(.*?)(returning|$)").unwrap();
    let function = Regex::new(r"\w+ ?\(").unwrap();
    for found in conflict.captures_iter(&sql) {
        if function.is_match(&found[1]) || found[1].contains("current_") || found[1].contains('$') {
            return Some(format!(
                "a function or bind after `on conflict do update`: {}",
                &found[1]
            ));
        }
    }
    // An update's SET and WHERE may have now(), which is stable, but nothing volatile; no RETURNING may.
    let volatile = Regex::new(r"clock_timestamp\(|statement_timestamp\(|random\(|gen_random_uuid\(").unwrap();
    if sql.contains("update ") && volatile.is_match(&sql) {
        return Some("a volatile function in an update".to_owned());
    }
    let returning = Regex::new(r"returning ([^)]*)").unwrap();
    returning
        .captures_iter(&sql)
        .find(|found| found[1].contains("now("))
        .map(|_| "now() in returning".to_owned())
}

#[test]
fn the_lint_sees_what_it_is_for() {
    for bad in [
        "-- idemctl:y\nselect 1",
        "-- idemctl:x\ndelete from k where ctid = any(array(select ctid from k))",
        "-- idemctl:x\nupdate k set a = 1 returning (xmax = 0)",
        "-- idemctl:x\nselect pg_advisory_lock(1)",
        "-- idemctl:x\ndelete from k where b < case a when 'x' then 1 else 2 end",
        "-- idemctl:x\nselect pg_try_advisory_lock(1)",
        "-- idemctl:x\ninsert into k values (1) on conflict (a) do update set b = now()",
        "-- idemctl:x\ninsert into k values (1) on conflict (a) do update set b = 1 where k.c < $1",
        "-- idemctl:x\nupdate k set a = clock_timestamp()",
        "-- idemctl:x\nupdate k set a = 1 returning now()",
    ] {
        assert!(wrong("x", bad).is_some(), "{bad}");
    }
    let good =
        "-- idemctl:x\n-- ctid\ninsert into k values (now()) on conflict (a) do update set b = excluded.b";
    assert_eq!(wrong("x", good), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_is_registered_named_and_portable() {
    let mut files = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    sources(&root, &mut files);
    let constant = Regex::new(r#"const \w+: Sql = Sql \{\s*name: "(\w+)""#).unwrap();
    let any = Regex::new(r"\bSql \{").unwrap();
    let mut written: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut here = 0;
        for found in constant.captures_iter(&text) {
            here += 1;
            assert!(path.starts_with(root.join("store")), "{}", path.display());
            let twice = written.insert(found[1].to_owned(), path.clone());
            assert!(twice.is_none(), "two statements are called {}", &found[1]);
        }
        // The definition of the type and its own impl are the only other places.
        if !path.ends_with("store/sql.rs") {
            assert_eq!(
                any.find_iter(&text).count(),
                here,
                "{}: a Sql in another form",
                path.display()
            );
        }
    }
    let table = Table::new().await;
    let listed: BTreeSet<String> = table
        .keys
        .store()
        .statements()
        .map(|statement| statement.name.to_owned())
        .collect();
    let written: BTreeSet<String> = written.into_keys().collect();
    assert_eq!(listed, written);
    assert!(listed.len() > 30, "{listed:?}");
    for statement in table.keys.store().statements() {
        assert_eq!(wrong(statement.name, &statement.text), None, "{}", statement.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_is_understood_by_every_kind_of_table() {
    for table in [
        Table::new().await,
        Table::jsonb().await,
        Table::partitioned().await,
    ] {
        for statement in table.keys.store().statements() {
            let prepared = table
                .db
                .client
                .prepare_typed(&statement.text, statement.types)
                .await
                .unwrap_or_else(|error| panic!("{}: {error:?}", statement.name));
            assert_eq!(prepared.params(), statement.types, "{}", statement.name);
        }
    }
}

//! A boot, and what its script found out.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use idemctl::dev::Binaries;

use crate::support::{Run, temp_dir};

/// The password that must be seen nowhere.
pub(super) const SECRET: &str = "s3cr3t-Pa55";

/// The binary under test, and where the units name it.
pub(super) fn binary() -> (&'static str, &'static str) {
    (env!("CARGO_BIN_EXE_idemctl"), "/usr/bin/idemctl")
}

/// A path of the project.
pub(super) fn project(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(path)
        .to_string_lossy()
        .into_owned()
}

/// What the script said, by name, each with the command's exit code.
#[derive(Debug)]
pub(super) struct Facts {
    facts: BTreeMap<String, (i32, String)>,
    journal: String,
}

/// Runs `tests/systemd/SCRIPT` inside a boot in which these files can be seen, too.
pub(super) async fn boot(script: &str, binds: &[(&str, &str)]) -> Facts {
    let out = temp_dir();
    let postgresql = Binaries::find(None).expect("PostgreSQL's programs");
    let mut args = vec!["-o".to_owned(), out.path().to_string_lossy().into_owned()];
    let (tests, units) = (project("tests/systemd"), project("systemd"));
    let own = [(tests.as_str(), "/run/tests"), (units.as_str(), "/run/units")];
    for (source, target) in own.iter().chain(binds) {
        args.extend(["-b".to_owned(), format!("{source}:{target}")]);
    }
    args.push(project(&format!("tests/systemd/{script}")));
    args.extend([postgresql.dir().to_string_lossy().into_owned(), SECRET.to_owned()]);
    let output = Run::new(&project("tests/systemd/boot"), &args)
        .limit(Duration::from_mins(3))
        .run()
        .await;
    let journal = std::fs::read_to_string(out.path().join("journal")).unwrap_or_default();
    assert_eq!(output.code, 0, "{}\n--- journal\n{journal}", output.transcript());
    Facts {
        facts: read(&output.stdout),
        journal,
    }
}

/// Lines between `<fact NAME STATUS>` and `</fact>`.
fn read(text: &str) -> BTreeMap<String, (i32, String)> {
    let mut facts = BTreeMap::new();
    for part in text.split("<fact ").skip(1) {
        let (head, rest) = part.split_once(">\n").expect("a head");
        let (name, status) = head.split_once(' ').expect("a name and a status");
        let (content, _) = rest.split_once("\n</fact>").expect("an end");
        let status = status.parse().expect("a status");
        facts.insert(name.to_owned(), (status, content.to_owned()));
    }
    facts
}

impl Facts {
    #[track_caller]
    fn get(&self, name: &str) -> &(i32, String) {
        self.facts
            .get(name)
            .unwrap_or_else(|| panic!("the script did not come to {name}: {self:#?}"))
    }

    /// What a command said that ended well.
    #[track_caller]
    pub(super) fn ok(&self, name: &str) -> &str {
        let (status, text) = self.get(name);
        assert_eq!(*status, 0, "{name}: {text}\n{}", self.journal);
        text
    }

    /// What a command said that did not.
    #[track_caller]
    pub(super) fn failed(&self, name: &str) -> &str {
        let (status, text) = self.get(name);
        assert_ne!(*status, 0, "{name}: {text}\n{}", self.journal);
        text
    }

    /// The names of those that hold a text.
    pub(super) fn holding(&self, part: &str) -> Vec<&str> {
        let facts = self.facts.iter();
        let holding = facts.filter(|(_, (_, text))| text.contains(part));
        holding.map(|(name, _)| name.as_str()).collect()
    }

    /// The journal of the whole boot.
    pub(super) fn journal(&self) -> &str {
        &self.journal
    }
}

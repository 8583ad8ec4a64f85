//! The programs of `examples/`, as processes.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::process::Run;

/// An example with arguments, ready to run.
pub(crate) fn example<S: AsRef<str>>(name: &str, args: &[S]) -> Run {
    let program = built().join(name);
    Run::new(&program.to_string_lossy(), args)
}

/// Where they are. `cargo test --test it` does not build them, and what lies there may be old: cargo knows.
fn built() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // target/PROFILE/deps/it-...
        let test = std::env::current_exe().expect("the test binary");
        let profile = test.ancestors().nth(2).expect("the profile's directory");
        let mut command = Command::new(cargo);
        command
            .args(["build", "--quiet", "--locked", "--examples"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        // What cargo tells a test about its package is news to the build scripts of `ring` and others: each
        // such build would compile them again, and the next ordinary one once more.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&*name);
            }
        }
        if profile.ends_with("release") {
            command.arg("--release");
        }
        let status = command.status().expect("cargo runs");
        assert!(status.success(), "the examples do not build");
        profile.join("examples")
    })
}

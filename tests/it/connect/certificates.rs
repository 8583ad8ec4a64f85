//! Certificates of all the kinds that people have, made by openssl.

use std::path::Path;
use std::process::Command;

use crate::support::{require_program, temp_dir};

/// A directory with `ca`, `other-ca`, the servers' and the client's certificates and keys.
pub(super) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(super) fn make() -> Self {
        let dir = temp_dir();
        let path = dir.path();
        for ca in ["ca", "other-ca"] {
            self_signed(path, ca, &format!("/CN={ca}"), &[]);
        }
        signed(
            path,
            "good",
            "/CN=localhost",
            Some("subjectAltName=DNS:localhost"),
        );
        signed(
            path,
            "other",
            "/CN=other",
            Some("subjectAltName=DNS:db.example,DNS:db2.example"),
        );
        // The manual's recipe ("Creating Certificates") as far as the leaf goes: version 1, a subject only.
        signed(path, "cnonly", "/CN=localhost", None);
        signed(path, "client", "/CN=certuser", None);
        self_signed(
            path,
            "self",
            "/CN=whatever",
            &["-addext", "subjectAltName=DNS:localhost"],
        );
        // The manual's first recipe: self-signed, a subject only.
        self_signed(path, "doc", "/CN=localhost", &[]);
        Self(dir)
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    pub(super) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).expect("made before")
    }
}

fn self_signed(dir: &Path, name: &str, subject: &str, extra: &[&str]) {
    let (key, crt) = (format!("{name}.key"), format!("{name}.crt"));
    let mut args = vec!["req", "-x509", "-days", "30", "-nodes", "-newkey", "rsa:2048"];
    args.extend(["-subj", subject, "-keyout", &key, "-out", &crt]);
    args.extend(extra);
    openssl(dir, &args);
}

fn signed(dir: &Path, name: &str, subject: &str, extension: Option<&str>) {
    let (key, csr, crt) = (
        format!("{name}.key"),
        format!("{name}.csr"),
        format!("{name}.crt"),
    );
    openssl(
        dir,
        &[
            "req", "-new", "-nodes", "-newkey", "rsa:2048", "-subj", subject, "-keyout", &key, "-out", &csr,
        ],
    );
    let mut args = vec!["x509", "-req", "-days", "30", "-in", &csr, "-out", &crt];
    args.extend(["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]);
    if let Some(extension) = extension {
        std::fs::write(dir.join("ext"), extension).expect("our own directory");
        args.extend(["-extfile", "ext"]);
    }
    openssl(dir, &args);
}

fn openssl(dir: &Path, args: &[&str]) {
    let output = Command::new(require_program("openssl", "openssl"))
        .current_dir(dir)
        .args(args)
        .output()
        .expect("openssl runs");
    assert!(
        output.status.success(),
        "openssl {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

//! Certificates of all the kinds that people have, made by openssl.

use std::path::Path;
use std::process::Command;

use crate::support::{require_program, temp_dir};

/// A directory with `ca`, `other-ca`, the servers' and the client's certificates and keys.
pub(crate) struct Certificates(tempfile::TempDir);

impl Certificates {
    pub(crate) fn make() -> Self {
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
        signed(
            path,
            "revoked",
            "/CN=localhost",
            Some("subjectAltName=DNS:localhost"),
        );
        signed(path, "client", "/CN=certuser", None);
        self_signed(
            path,
            "self",
            "/CN=whatever",
            &["-addext", "subjectAltName=DNS:localhost"],
        );
        // The manual's first recipe: self-signed, a subject only.
        self_signed(path, "doc", "/CN=localhost", &[]);
        revoke(path, "revoked");
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
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

/// Writes `ca.crl` with this certificate in it.
fn revoke(dir: &Path, name: &str) {
    let config = "[ca]\ndefault_ca = one\n[one]\ndatabase = index\ncertificate = ca.crt\nprivate_key = ca.key\n\
                  default_md = sha256\ndefault_crl_days = 30\ncrlnumber = crlnumber\ncrl_extensions = ext\n\
                  [ext]\nauthorityKeyIdentifier = keyid\n";
    std::fs::write(dir.join("ca.cnf"), config).expect("our own directory");
    std::fs::write(dir.join("index"), "").expect("our own directory");
    std::fs::write(dir.join("crlnumber"), "01\n").expect("our own directory");
    openssl(
        dir,
        &["ca", "-config", "ca.cnf", "-revoke", &format!("{name}.crt")],
    );
    openssl(dir, &["ca", "-config", "ca.cnf", "-gencrl", "-out", "ca.crl"]);
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

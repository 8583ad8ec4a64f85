//! Secrets of providers: where they come from, and how they stay out of every message.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::io::AsyncReadExt as _;

use super::Surroundings;
use crate::credential::{self, Credential};

/// Larger files are no secrets but mistakes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Redacted(String);

impl Redacted {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// A header's value in the configuration: a plain string, or where to read it.
///
/// `{ prefix = "Bearer ", file = "/etc/idemctl/acme" }`, `{ credential = "acme" }` for one of systemd's
/// (`LoadCredential=`), or `{ env = "ACME_KEY" }`. Exactly one of them; one newline at the end of the file or
/// credential does not belong to the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderValue {
    prefix: String,
    source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Plain(Redacted),
    File(PathBuf),
    Credential(Credential),
    Env(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    #[serde(default)]
    prefix: String,
    file: Option<PathBuf>,
    credential: Option<Credential>,
    env: Option<String>,
}

impl HeaderValue {
    /// A value that stands in the configuration itself.
    pub fn plain(value: impl Into<String>) -> Self {
        Self {
            prefix: String::new(),
            source: Source::Plain(Redacted::new(value)),
        }
    }

    /// Reads the value as it is now, as a header's. Returns why it cannot be had, without any part of it.
    pub(super) async fn read(
        &self,
        surroundings: &Surroundings,
    ) -> Result<reqwest::header::HeaderValue, String> {
        let mut value = reqwest::header::HeaderValue::from_str(&self.text(surroundings).await?)
            .map_err(|_| format!("{} has characters that no header may have", self.origin()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Reads the value as it is now. Returns why it cannot be had, without any part of it.
    pub(super) async fn text(&self, surroundings: &Surroundings) -> Result<String, String> {
        let origin = self.origin();
        let secret = match &self.source {
            Source::Plain(value) => value.reveal().to_owned(),
            Source::Env(name) => match (surroundings.env)(name) {
                Some(value) => value,
                None => return Err(format!("{origin} is not set")),
            },
            Source::File(path) => read_file(path)
                .await
                .map_err(|error| format!("{origin} cannot be read: {error}"))?,
            Source::Credential(name) => {
                let directory = (surroundings.env)(credential::DIRECTORY);
                let path = name
                    .path(directory.as_deref())
                    .map_err(|problem| format!("{origin} {problem}"))?;
                read_file(&path)
                    .await
                    .map_err(|error| format!("{origin} {}", name.unreadable(&error)))?
            }
        };
        if secret.is_empty() {
            return Err(format!("{origin} is empty"));
        }
        Ok(format!("{}{secret}", self.prefix))
    }

    /// Where the value stands, for messages.
    fn origin(&self) -> String {
        match &self.source {
            Source::Plain(_) => "the configured value".to_owned(),
            Source::Env(name) => format!("the environment variable {name}"),
            Source::File(path) => format!("the file {}", path.display()),
            Source::Credential(name) => format!("the credential {name}"),
        }
    }
}

async fn read_file(path: &std::path::Path) -> std::io::Result<String> {
    let file = tokio::fs::File::open(path).await?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).await?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other(format!(
            "it is longer than {MAX_FILE_BYTES} bytes"
        )));
    }
    if let Some(line) = text.strip_suffix('\n') {
        let length = line.strip_suffix('\r').unwrap_or(line).len();
        text.truncate(length);
    }
    Ok(text)
}

impl<'de> Deserialize<'de> for HeaderValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = HeaderValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or a table with `file`, `credential` or `env` and perhaps `prefix`")
            }

            fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<HeaderValue, E> {
                Ok(HeaderValue::plain(value))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeaderValue, A::Error> {
                let Parts {
                    prefix,
                    file,
                    credential,
                    env,
                } = Parts::deserialize(MapAccessDeserializer::new(map))?;
                let source = match (file, credential, env) {
                    (Some(file), None, None) => Source::File(file),
                    (None, Some(name), None) => Source::Credential(name),
                    (None, None, Some(env)) => Source::Env(env),
                    _ => {
                        return Err(serde::de::Error::custom(
                            "give exactly one of `file`, `credential` and `env`",
                        ));
                    }
                };
                Ok(HeaderValue { prefix, source })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

//! The few repairs that lose nothing, lock nobody out, and give nobody a privilege.

use std::collections::BTreeSet;

use super::{Check, Fix};
use crate::connect::{Connection, Settings};
use crate::error::Result;
use crate::ops::migrate;
use crate::store::{doctor, shape};

/// What can be repaired of these findings, each once.
pub fn possible(checks: &[Check]) -> Vec<Fix> {
    let wanted: BTreeSet<Fix> = checks.iter().filter_map(|check| check.fix).collect();
    wanted.into_iter().collect()
}

impl Fix {
    /// What is done, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Indexes => "build the missing and invalid indexes concurrently (idemctl migrate)",
            Self::Analyze => "gather the planner's statistics (analyze)",
        }
    }
}

/// Does one of them; says what was done. Look again afterwards: it may not have been enough.
///
/// Returns [`crate::error::Error::Migration`] where an index cannot be built as things are, and the database's error
/// where the role may not.
pub async fn run(settings: &Settings, schema: Option<&str>, fix: Fix) -> Result<String> {
    match fix {
        Fix::Indexes => {
            let report = migrate::run(settings, schema, &migrate::Options::default()).await?;
            let files: Vec<&str> = report.steps.iter().map(|step| step.file.as_str()).collect();
            Ok(if files.is_empty() {
                "indexes: nothing was left to do".to_owned()
            } else {
                format!("indexes: ran {}", files.join(", "))
            })
        }
        Fix::Analyze => {
            let conn = Connection::open(settings).await?;
            let schema = shape::look(&conn, schema).await?.schema;
            doctor::analyze(&conn, &schema).await?;
            conn.close().await;
            Ok("statistics: gathered".to_owned())
        }
    }
}

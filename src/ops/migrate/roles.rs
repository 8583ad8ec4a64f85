//! The script of the group roles, for a DBA: nothing is run.

use super::situation::check_schema_name;
use crate::error::{Error, Result};
use crate::store::{Executor, Tables, roles, shape};

/// Longest name of PostgreSQL in bytes (manual, section "Identifiers and Key Words"); it cuts what is longer.
const MAX_NAME: usize = 63;

/// A script that makes four group roles without login (`PREFIX_app`, `PREFIX_viewer`, `PREFIX_operator`,
/// `PREFIX_janitor`) and grants each what it needs of the tables in `schema`, and nothing else. It may be run again
/// at any time.
///
/// Returns [`Error::Invalid`] for a prefix or schema that no name can hold.
pub fn script(schema: &str, prefix: &str) -> Result<String> {
    check_schema_name(schema)?;
    check_prefix(prefix)?;
    Ok(roles::script(&Tables::new(schema), prefix))
}

/// The schema in which the tables are found on this connection: the first of the search path that has them.
///
/// Returns [`Error::Schema`] where there are none.
pub async fn table_schema(executor: &impl Executor) -> Result<String> {
    let shape = shape::look(executor, None).await?;
    if shape.exists() {
        return Ok(shape.schema);
    }
    Err(Error::Schema {
        what: "no schema of the search path has a table idempotency".to_owned(),
    })
}

fn check_prefix(name: &str) -> Result<()> {
    let most = MAX_NAME - roles::LONGEST_SUFFIX;
    let reason = if name.is_empty() {
        "is empty".to_owned()
    } else if name.len() > most {
        format!("has {} bytes; at most {most} are allowed", name.len())
    } else if name.chars().any(char::is_control) {
        "has a control character".to_owned()
    } else if name == "pg" || name.starts_with("pg_") {
        "begins with pg_, which PostgreSQL keeps for itself".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Invalid {
        field: "role prefix",
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_server_would_cut_or_refuse_is_refused_here() {
        script("public", &"r".repeat(54)).unwrap();
        for (schema, prefix) in [
            ("public", "r".repeat(55).as_str()),
            ("public", ""),
            ("public", "a\nb"),
            ("public", "pg"),
            ("", "idemctl"),
            ("{events}", "idemctl"),
        ] {
            assert!(script(schema, prefix).is_err(), "{schema:?} {prefix:?}");
        }
    }
}

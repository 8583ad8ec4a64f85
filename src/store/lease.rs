use super::Sql;
pub(crate) const STATEMENTS: &[Sql] = &[];

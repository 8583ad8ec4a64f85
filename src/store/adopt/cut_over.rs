//! The last transaction of the script: what came, changed or went since the batches, and the change of the tables.

use super::script::{CONTROL, Copy, block};
use super::{FILLED, Value};
use crate::store::quote_ident;

/// What [`Copy::stateless`] needs to be declared.
pub(super) const DECLARE_ODD: &str = "  odd text;\n";

/// Our columns whose values have a collation, which theirs need not share.
const TEXTS: [&str; 9] = [
    "client_id",
    "key",
    "fingerprint",
    "status",
    "owner",
    "operation",
    "provider",
    "order_id",
    "last_error",
];

/// The constraint that keeps everybody from writing into their table afterwards, through a view or a partition, too.
const RETIRED: &str = "idemctl_retired";

impl Copy {
    /// Makes the copy what their table is now, checks that it is, and takes their table out of use: one transaction.
    pub(crate) fn cut_over(&self) -> Vec<String> {
        let (source, filled, target) = (self.table.quoted(), self.filled(), self.target());
        let index = format!("{}.{FILLED}_pkey", quote_ident(&self.schema));
        let ours = "lease_token is null";
        let mut statements = vec![
            // With another level the rows would be those of the moment before the lock, at worst.
            "begin isolation level read committed".to_owned(),
            "set local lock_timeout = '5s'".to_owned(),
            // Rows that a policy hides would be missed by the copy and by its check alike: an error instead.
            "set local row_security = off".to_owned(),
            format!("lock table {source} in access exclusive mode"),
            block(&format!(
                "<<idemctl>>\ndeclare\n{DECLARE_ODD}begin\n  {}\nend",
                self.stateless("").replace('\n', "\n  ")
            )),
            format!("delete from {filled} where status = 'in_progress' and {ours}"),
            format!(
                "delete from {filled} k where k.{ours} and not exists (\n  select from (\n{}\n  ) c\n   where {})",
                self.rows(None),
                self.same()
            ),
            self.insert_missing(),
            self.verify(),
            format!("alter table {source} add constraint {RETIRED} check (false) not valid"),
            format!("alter table {source} rename to {}", quote_ident(&self.retired())),
        ];
        statements.extend([
            format!("alter table {filled} rename to idempotency"),
            block(&format!(
                "begin\n  if to_regclass({}) is null then\n    alter index if exists {index} rename to idempotency_pkey;\n  end \
                 if;\nend",
                super::quote_literal(&format!("{target}_pkey"))
            )),
            "commit".to_owned(),
        ]);
        statements
    }

    /// What came, or was deleted as stale. Most rows are there: without the look for them each would be tried.
    fn insert_missing(&self) -> String {
        let names: Vec<&str> = self.values.iter().map(|(ours, _)| *ours).collect();
        let (names, filled) = (names.join(", "), self.filled());
        format!(
            "insert into {filled} ({names})\nselect {names} from (\n{}\n  ) c\n where not exists (select from {filled} k\n   \
             where k.client_id = c.client_id collate \"default\" and k.key = c.key collate \"default\")\non conflict (client_id, key) \
             do nothing",
            self.rows(None)
        )
    }

    /// What their table is called afterwards.
    pub(crate) fn retired(&self) -> String {
        let mut name = self.table.name.clone();
        // PostgreSQL cuts names at 63 bytes.
        while name.len() > 52 {
            name.pop();
        }
        name + "_retired"
    }

    /// Whether the row `k` of the copy is what the row `c` of theirs is now.
    fn same(&self) -> String {
        let each = self.values.iter().filter(|(_, value)| !value.moves());
        let each: Vec<String> = each
            .map(|(ours, _)| match *ours {
                "client_id" | "key" => format!("k.{ours} = c.{ours} collate \"default\""),
                ours if TEXTS.contains(&ours) => {
                    format!("k.{ours} is not distinct from c.{ours} collate \"default\"")
                }
                // There is no equality of json.
                "response" => "k.response::text is not distinct from c.response::text".to_owned(),
                ours => format!("k.{ours} is not distinct from c.{ours}"),
            })
            .collect();
        each.join("\n     and ")
    }

    /// Stops at a row whose state nobody has explained, and names its word. It needs [`DECLARE_ODD`];
    /// the condition is nothing, or ends in `and`.
    pub(super) fn stateless(&self, condition: &str) -> String {
        let status = self.value("status");
        let found = self.values.iter().find(|(ours, _)| *ours == "status");
        let (word, what) = match found {
            Some((_, Value::Status(name, ..))) => (
                format!("coalesce(left(s.{}::text, 100), 'null')", quote_ident(name)),
                "the word \"%\" for a state has no meaning in this script",
            ),
            _ => (
                "'row'".to_owned(),
                "a % has an answer that is empty, or signs of an end that contradict each other",
            ),
        };
        let source = self.table.quoted();
        format!(
            "select {word} into idemctl.odd\n  from {source} s\n   where {condition}({status}) is null limit 1;\nif found then\n  raise \
             exception '{what}', idemctl.odd\n    using hint = {hint};\nend if;",
            hint = super::quote_literal(&format!(
                "nothing of theirs was changed; drop table {}, have a script made that says what it means, and run that one",
                self.filled()
            ))
        )
    }

    fn verify(&self) -> String {
        let (filled, rows, same) = (self.filled(), self.rows(None), self.same());
        let names = format!(
            "length(k.client_id) not between 1 and 255 or length(k.key) not between 1 and 255\n      or k.client_id ~ \
             {CONTROL} or k.key ~ {CONTROL}"
        );
        let checks = [
            (
                format!("(\n{rows}\n  ) c\n   where not exists (select from {filled} k\n   where {same})"),
                "% rows were not copied as they are",
            ),
            (
                format!("{filled} k\n   where not exists (select from (\n{rows}\n  ) c\n   where {same})"),
                "% rows of the copy are not in the table, or are others there",
            ),
            (
                format!("{filled} k\n   where {names}"),
                "% rows have a client or key that no request can name (empty, over 255 characters, control characters)",
            ),
            (
                format!("{filled} k\n   where k.status_code not between 100 and 599"),
                "% rows have a status code that is no HTTP status (100 to 599)",
            ),
        ];
        let checks: Vec<String> = checks
            .iter()
            .map(|(from, what)| {
                format!(
                    "  select count(*) into wrong from {from};\n  if wrong > 0 then\n    raise exception '{what}; nothing of this \
                     transaction is kept', wrong;\n  end if;\n"
                )
            })
            .collect();
        block(&format!(
            "declare\n  wrong bigint;\nbegin\n{}end",
            checks.concat()
        ))
    }
}

//! The SQL that copies a table of another shape, as text for a person to read and to run.

use std::fmt::Write as _;

use super::cut_over::DECLARE_ODD;
use super::{FILLED, Table, Value};
use crate::store::migrate::MIGRATIONS;
use crate::store::quote_ident;

/// Rows of one transaction.
const BATCH: u32 = 5_000;

/// What a claim takes for a control character: C0, DEL and C1.
pub(super) const CONTROL: &str = r"E'[\\x01-\\x1f\\x7f-\\x9f]'";

/// Our columns that a row in progress must not have, besides the status code.
const OF_AN_END: [&str; 3] = ["response", "response_body", "completed_at"];

/// How a table is copied.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(crate) table: Table,
    /// Where our table is made.
    pub(crate) schema: String,
    /// Each of our columns that gets a value.
    pub(crate) values: Vec<(&'static str, Value)>,
    /// Their unique key, in the order of its index.
    pub(crate) order: Vec<String>,
}

impl Copy {
    /// The rows as ours, out of the relation `from`; without names of columns where `select` has them already.
    fn select(&self, from: &str) -> String {
        let mut outer = Vec::new();
        for (ours, _) in &self.values {
            outer.push(match *ours {
                // Without a code a final error would be replayed as a success.
                "status_code" => {
                    "       case v.status when 'failed' then coalesce(v.status_code, 500) when 'done' then \
                                  v.status_code end as status_code"
                        .to_owned()
                }
                ours if OF_AN_END.contains(&ours) => {
                    format!("       case when v.status <> 'in_progress' then v.{ours} end as {ours}")
                }
                ours => format!("       v.{ours}"),
            });
        }
        format!(
            "select {}\n  from ({}) v",
            outer.join(",\n").trim_start(),
            self.converted(from)
        )
    }

    /// The same before what does not fit a row in progress is left out.
    fn converted(&self, from: &str) -> String {
        let each = self.values.iter().map(|(ours, value)| {
            let sql = value.sql();
            let cast = match *ours {
                "response_body" => format!("({sql})::bytea"),
                "response" => format!("({sql})::json"),
                "status_code" => format!("({sql})::int"),
                "completed_at" => format!("({sql})::timestamptz"),
                _ => sql,
            };
            format!("         {cast} as {ours}")
        });
        let each: Vec<String> = each.collect();
        format!("select {}\n          from {from}", each.join(",\n").trim_start())
    }

    /// Rows in progress that have signs of an end, of the first that are met.
    pub(super) fn ended_in_progress(&self, limit: u64) -> String {
        let from = format!("(select * from {} limit {limit}) s", self.table.quoted());
        let sign = |(ours, _): &(&'static str, Value)| match *ours {
            "completed_at" => Some("v.completed_at is not null"),
            "status_code" => Some("v.status_code between 100 and 599"),
            _ => None,
        };
        let signs: Vec<&str> = self.values.iter().filter_map(sign).collect();
        let signs = if signs.is_empty() {
            "false".to_owned()
        } else {
            signs.join(" or ")
        };
        format!(
            "select count(*) from ({}) v where v.status = 'in_progress' and ({signs})",
            self.converted(&from)
        )
    }

    /// A condition on a row `r`: it holds headers that no answer can have.
    pub(super) fn odd_headers(&self) -> &'static str {
        if self.values.iter().any(|(ours, _)| *ours == "response_headers") {
            "r.status <> 'in_progress' and r.response_headers is not null
                          and case jsonb_typeof(r.response_headers)
                                when 'object' then exists (select from jsonb_each(r.response_headers) h
                                                            where jsonb_typeof(h.value) <> 'string')
                                when 'array' then exists (
                                  select from jsonb_array_elements(r.response_headers) h
                                   where case when jsonb_typeof(h) = 'array' then jsonb_array_length(h) <> 2 else true end
                                      or jsonb_typeof(h -> 0) <> 'string' or jsonb_typeof(h -> 1) <> 'string')
                                else true end"
        } else {
            "false"
        }
    }

    /// All rows as ours.
    pub(crate) fn rows(&self, limit: Option<u64>) -> String {
        let from = match limit {
            Some(limit) => format!("(select * from {} limit {limit}) s", self.table.quoted()),
            None => format!("{} s", self.table.quoted()),
        };
        self.select(&from)
    }

    pub(super) fn insert(&self, from: &str) -> String {
        let names: Vec<&str> = self.values.iter().map(|(ours, _)| *ours).collect();
        format!(
            "insert into {} ({})\n{}\non conflict (client_id, key) do nothing",
            self.filled(),
            names.join(", "),
            self.select(from)
        )
    }

    /// The table that is filled. It gets its name, [`Copy::target`], when it is complete: nobody can claim a key in a
    /// half of it.
    pub(super) fn filled(&self) -> String {
        format!("{}.{FILLED}", quote_ident(&self.schema))
    }

    pub(super) fn target(&self) -> String {
        format!("{}.idempotency", quote_ident(&self.schema))
    }

    /// The expression of one of our columns, over the row `s`.
    pub(super) fn value(&self, ours: &str) -> String {
        let found = self.values.iter().find(|(name, _)| *name == ours);
        found.map_or_else(|| "null".to_owned(), |(_, value)| value.sql())
    }

    /// The table of the protocol, as the migrations make it, under another name.
    pub(crate) fn create(&self) -> Vec<String> {
        let keys = MIGRATIONS.iter().find(|migration| migration.name() == "keys");
        let create = keys.and_then(|migration| migration.statements().into_iter().next());
        let create = create
            .unwrap_or_default()
            .replace("create table if not exists", "create table")
            .replace("{keys}", &self.filled());
        vec![
            format!("create schema if not exists {}", quote_ident(&self.schema)),
            create,
        ]
    }

    /// Copies what there is, while readers and writers of their table go on.
    pub(crate) fn batches(&self) -> String {
        let source = self.table.quoted();
        let list = |each: &dyn Fn(usize, &String) -> String| {
            let list: Vec<String> = self
                .order
                .iter()
                .enumerate()
                .map(|(n, name)| each(n + 1, name))
                .collect();
            list.join(", ")
        };
        let key = list(&|_, name| format!("s.{}", quote_ident(name)));
        let descending = list(&|_, name| format!("page.{} desc", quote_ident(name)));
        // The variables are named with their block, which no column can be.
        let low = list(&|n, _| format!("idemctl.low{n}"));
        let high = list(&|n, _| format!("idemctl.high{n}"));
        let (mut declare, mut steps) = (String::new(), String::new());
        for (n, name) in self.order.iter().enumerate() {
            let n = n + 1;
            let kind = format!("{source}.{}%type", quote_ident(name));
            // Writing into a string cannot fail.
            let _ = writeln!(declare, "  low{n} {kind};\n  high{n} {kind};");
            let _ = writeln!(steps, "    idemctl.low{n} := idemctl.high{n};");
        }
        let after = format!("idemctl.begun is not true or ({key}) > ({low})");
        let range = format!("{source} s\n         where ({after}) and ({key}) <= ({high})");
        let (words, insert) = (
            self.stateless(&format!("({after}) and ({key}) <= ({high}) and ")),
            self.insert(&range),
        );
        // A plan for any values could not begin in the middle of the index, and would read all rows for each batch.
        block(&format!(
            "<<idemctl>>\ndeclare\n  begun boolean;\n{DECLARE_ODD}{declare}begin\n  loop\n    perform set_config('plan_cache_mode', \
             'force_custom_plan', true);\n    select * into {high}\n      \
             from (select {key} from {source} s\n             where {after}\n             order by {key} limit {BATCH}) \
             page\n     order by {descending} limit 1;\n    exit when not found;\n    {words}\n    {insert};\n    \
             commit;\n    idemctl.begun := true;\n{steps}  end loop;\nend",
            words = words.replace('\n', "\n    "),
            insert = insert.replace('\n', "\n    "),
        ))
    }

    /// The statements of the whole migration.
    pub(crate) fn statements(&self) -> Vec<String> {
        let mut all = self.create();
        all.push(self.batches());
        all.push(format!("analyze {}", self.filled()));
        all.extend(self.cut_over());
        all
    }

    /// A view that shows their table under our names.
    pub(crate) fn view(&self) -> String {
        format!(
            "create view {}.idempotency_read as\n{}",
            quote_ident(&self.schema),
            self.rows(None)
        )
    }
}

/// An anonymous block, in dollar quotes that do not occur in it: names of theirs do, and may hold anything.
pub(super) fn block(body: &str) -> String {
    // A body holds no tag that is longer than itself.
    let mut tag = "$idemctl$".to_owned();
    while body.contains(&tag) {
        tag.insert(tag.len() - 1, 'x');
    }
    format!("do {tag}\n{body}\n{tag}")
}

//! The SQL that copies a table of another shape, as text for a person to read and to run.

use std::fmt::Write as _;

use super::{Table, quote_literal};
use crate::store::migrate::MIGRATIONS;
use crate::store::{Tables, quote_ident};

/// Rows of one transaction.
const BATCH: u32 = 5_000;

/// What a claim takes for a control character: C0, DEL and C1.
pub(super) const CONTROL: &str = r"E'[\\x01-\\x1f\\x7f-\\x9f]'";

/// A word of theirs for a state, and ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) theirs: String,
    pub(crate) ours: &'static str,
}

/// Where the value of one of our columns comes from. Names of columns are theirs, unquoted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// As it is.
    As(String),
    /// As text.
    Text(String),
    /// A text that holds a number.
    Number(String),
    /// As PostgreSQL prints it, kept as `json`.
    Json(String),
    /// The bytes of a text.
    Bytes(String),
    /// A time without time zone, in this one.
    In(String, String),
    /// Text that is 64 hex digits already, else the SHA-256 of the text.
    Fingerprint(String),
    /// Hex digits of bytes, if there are 32 of them, else the SHA-256 of the bytes.
    FingerprintBytes(String),
    /// Their words for a state; any other is null, which our table refuses.
    Status(String, Vec<Word>),
    /// Done where any of these is there, else in progress.
    DoneWhereAny(Vec<String>),
    /// So many seconds later.
    Later(Box<Value>, f64),
    /// The first that is not null.
    Either(Box<Value>, Box<Value>),
    /// A text of ours.
    Constant(String),
    /// When the statement runs.
    Now,
    /// Nothing.
    Null,
}

impl Value {
    /// The expression, over the row `s`.
    pub(crate) fn sql(&self) -> String {
        let s = |name: &String| format!("s.{}", quote_ident(name));
        match self {
            Self::As(name) => s(name),
            Self::Text(name) => format!("{}::text", s(name)),
            Self::Number(name) => format!("{}::text::int", s(name)),
            Self::Json(name) => format!("{}::text::json", s(name)),
            Self::Bytes(name) => format!("convert_to({}::text, 'UTF8')", s(name)),
            Self::In(name, zone) => format!("{} at time zone {}", s(name), quote_literal(zone)),
            Self::Fingerprint(name) => {
                let text = format!("{}::text", s(name));
                format!(
                    "case when {text} ~* '^[0-9a-f]{{64}}$' then lower({text}) else \
                     encode(sha256(convert_to({text}, 'UTF8')), 'hex') end"
                )
            }
            Self::FingerprintBytes(name) => {
                let bytes = s(name);
                format!(
                    "case when octet_length({bytes}) = 32 then encode({bytes}, 'hex') else encode(sha256({bytes}), \
                     'hex') end"
                )
            }
            Self::Status(name, words) => {
                let mut text = format!("case {}::text", s(name));
                for Word { theirs, ours } in words {
                    // Writing into a string cannot fail.
                    let _ = write!(text, " when {} then '{ours}'", quote_literal(theirs));
                }
                text + " end"
            }
            Self::DoneWhereAny(names) => {
                let there: Vec<String> = names
                    .iter()
                    .map(|name| format!("{} is not null", s(name)))
                    .collect();
                format!(
                    "case when {} then 'done' else 'in_progress' end",
                    there.join(" or ")
                )
            }
            Self::Later(value, seconds) => {
                format!("{} + interval '{seconds} seconds'", value.sql())
            }
            Self::Either(first, second) => format!("coalesce({}, {})", first.sql(), second.sql()),
            Self::Constant(text) => quote_literal(text),
            Self::Now => "now()".to_owned(),
            Self::Null => "null".to_owned(),
        }
    }
}

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
        let mut inner = Vec::new();
        let mut outer = Vec::new();
        for (ours, value) in &self.values {
            let sql = value.sql();
            let cast = match *ours {
                "response_body" => format!("({sql})::bytea"),
                "response" => format!("({sql})::json"),
                "status_code" => format!("({sql})::int"),
                "completed_at" => format!("({sql})::timestamptz"),
                _ => sql,
            };
            inner.push(format!("         {cast} as {ours}"));
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
            "select {}\n  from (select {}\n          from {from}) v",
            outer.join(",\n").trim_start(),
            inner.join(",\n").trim_start()
        )
    }

    /// All rows as ours.
    pub(crate) fn rows(&self, limit: Option<u64>) -> String {
        let from = match limit {
            Some(limit) => format!("(select * from {} limit {limit}) s", self.table.quoted()),
            None => format!("{} s", self.table.quoted()),
        };
        self.select(&from)
    }

    fn insert(&self, from: &str) -> String {
        let names: Vec<&str> = self.values.iter().map(|(ours, _)| *ours).collect();
        format!(
            "insert into {} ({})\n{}\non conflict (client_id, key) do nothing",
            self.target(),
            names.join(", "),
            self.select(from)
        )
    }

    fn target(&self) -> String {
        format!("{}.idempotency", quote_ident(&self.schema))
    }

    /// The expression of one of our columns, over the row `s`.
    pub(super) fn value(&self, ours: &str) -> String {
        let found = self.values.iter().find(|(name, _)| *name == ours);
        found.map_or_else(|| "null".to_owned(), |(_, value)| value.sql())
    }

    /// The table of the protocol, as the migrations make it.
    pub(crate) fn create(&self) -> Vec<String> {
        let tables = Tables::new(&self.schema);
        let keys = MIGRATIONS.iter().find(|migration| migration.name() == "keys");
        let create = keys.and_then(|migration| migration.statements().into_iter().next());
        let create = create
            .unwrap_or_default()
            .replace("create table if not exists", "create table");
        vec![
            format!("create schema if not exists {}", quote_ident(&self.schema)),
            tables.fill(&create),
        ]
    }

    /// Copies what there is, while readers and writers of their table go on.
    pub(crate) fn batches(&self) -> String {
        let source = self.table.quoted();
        let key: Vec<String> = self
            .order
            .iter()
            .map(|name| format!("s.{}", quote_ident(name)))
            .collect();
        let key = key.join(", ");
        let names = |prefix: &str| {
            let list: Vec<String> = (1..=self.order.len()).map(|n| format!("{prefix}{n}")).collect();
            list.join(", ")
        };
        let mut declare = String::new();
        for (n, name) in self.order.iter().enumerate() {
            let n = n + 1;
            let column = format!("{source}.{}%type", quote_ident(name));
            // Writing into a string cannot fail.
            let _ = writeln!(declare, "  low{n} {column};\n  high{n} {column};");
        }
        let steps: String = (1..=self.order.len()).fold(String::new(), |mut text, n| {
            let _ = writeln!(text, "    low{n} := high{n};");
            text
        });
        let descending = key
            .split(", ")
            .map(|name| format!("{} desc", name.replacen("s.", "page.", 1)));
        let descending = descending.collect::<Vec<_>>().join(", ");
        let range = format!(
            "{source} s\n         where (begun is not true or ({key}) > ({})) and ({key}) <= ({})",
            names("low"),
            names("high")
        );
        block(&format!(
            "declare\n  begun boolean;\n{declare}begin\n  loop\n    select * into {high}\n      from (select {key} \
             from {source} s\n             where begun is not true or ({key}) > ({low})\n             order by {key} limit \
             {BATCH}) page\n     order by {descending} limit 1;\n    exit when not found;\n    {insert};\n    commit;\n    begun \
             := true;\n{steps}  end loop;\nend",
            high = names("high"),
            low = names("low"),
            insert = self.insert(&range).replace('\n', "\n    "),
        ))
    }

    /// Copies what came since, checks that nothing is missing, and takes their table out of use: one transaction.
    pub(crate) fn cut_over(&self) -> Vec<String> {
        let (source, target) = (self.table.quoted(), self.target());
        let name = quote_ident(&self.retired());
        vec![
            "begin".to_owned(),
            "set local lock_timeout = '5s'".to_owned(),
            format!("lock table {source} in access exclusive mode"),
            // What was copied while it was in progress may have ended meanwhile. Nobody else has claimed here yet.
            format!("delete from {target} where status = 'in_progress' and lease_token is null"),
            self.insert(&format!("{source} s")),
            self.verify(),
            format!("alter table {source} rename to {name}"),
            "commit".to_owned(),
        ]
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

    fn verify(&self) -> String {
        let (source, target) = (self.table.quoted(), self.target());
        let (client, key) = (self.value("client_id"), self.value("key"));
        block(&format!(
            "declare\n  wrong bigint;\nbegin\n  select count(*) into wrong from {source} s\n   where not exists \
             (select from {target} k where k.client_id = {client} and k.key = {key});\n  if wrong > 0 then\n    raise exception \
             '% rows were not copied; nothing of this transaction is kept', wrong;\n  end if;\n  select count(*) into wrong from \
             {target} k\n   where length(k.client_id) not between 1 and 255 or length(k.key) not between 1 and 255\n      or \
             k.client_id ~ {CONTROL} or k.key ~ {CONTROL};\n  if wrong > 0 then\n    raise exception '% rows have a client or key \
             that no request can name (empty, over 255 characters, control characters)', wrong;\n  end if;\nend"
        ))
    }

    /// The statements of the whole migration.
    pub(crate) fn statements(&self) -> Vec<String> {
        let mut all = self.create();
        all.push(self.batches());
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
fn block(body: &str) -> String {
    // A body holds no tag that is longer than itself.
    let mut tag = "$idemctl$".to_owned();
    while body.contains(&tag) {
        tag.insert(tag.len() - 1, 'x');
    }
    format!("do {tag}\n{body}\n{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_are_quoted() {
        let value = Value::Status(
            "st\"ate".to_owned(),
            vec![Word {
                theirs: "it's \\ done".to_owned(),
                ours: "done",
            }],
        );
        assert_eq!(
            value.sql(),
            "case s.\"st\"\"ate\"::text when E'it''s \\\\ done' then 'done' end"
        );
    }
}

//! The same for people, and for spreadsheets.

use std::io::{self, Write};

use idemctl::ops::stats::{AGE_ENDS, Count};
use idemctl::time::Timestamp;

use super::super::key::age;
use super::super::{Document, printable, table};
use super::{BacklogView, NamesView, StatsView, StorageView, share};

/// Said wherever somebody looks for the losers' share.
const LOSERS: &str =
    "not in the table: a metric of the services, in_progress over all of idemctl_reserve_total";

impl Document for StatsView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut all = vec!["STATE".to_owned(), "ROWS".to_owned()];
        write!(
            out,
            "rows      {} in schema {}",
            count(self.rows),
            printable(&self.schema)
        )?;
        match &self.sample {
            Some(sample) => writeln!(
                out,
                "; ~ from a sample of {} rows, {} % of the pages",
                sample.rows, sample.percent_of_pages
            )?,
            None => writeln!(out)?,
        }
        match &self.storage {
            Some(storage) => {
                storage.line(out, "size")?;
                storage.housekeeping(out)?;
            }
            None => writeln!(out, "size      unknown")?,
        }
        match &self.event_log {
            Some(log) => log.line(out, "events")?,
            None => writeln!(out, "events    unknown")?,
        }
        let again = self.taken_over.zip(self.rows).map(|(again, rows)| {
            let percent = share(again.count, rows.count) * 100.0;
            format!(
                "{} keys acquired more than once ({percent:.2} %): takeovers",
                count(Some(again))
            )
        });
        writeln!(out, "retries   {}", again.as_deref().unwrap_or("unknown"))?;
        writeln!(out, "losers    {LOSERS}")?;
        self.expired_line(out)?;
        self.backlog.line(out)?;
        for end in AGE_ENDS {
            all.push(format!("<{}", short(end)));
        }
        all.push("older".to_owned());
        let states = self.states.iter().map(|state| {
            let mut row = vec![state.state.to_owned(), count(Some(state.rows))];
            row.extend(state.ages.iter().map(|age| number(age.count, age.estimated)));
            row.resize(AGE_ENDS.len() + 3, "?".to_owned());
            row
        });
        table::plain(out, all, states.collect())?;
        for (head, names, none) in [
            ("CLIENT", &self.clients, ""),
            ("PROVIDER", &self.providers, "(none)"),
        ] {
            if let Some(names) = names.as_ref().filter(|names| !names.top.is_empty()) {
                names.table(out, head, none)?;
            }
        }
        Ok(())
    }

    /// One number a line, so that a spreadsheet can take it.
    fn csv(&self) -> Option<Vec<Vec<String>>> {
        let mut rows = vec![
            ["metric", "name", "value", "estimated"]
                .map(str::to_owned)
                .to_vec(),
        ];
        let mut add = |metric: &str, name: &str, value: String, estimated: bool| {
            rows.push(vec![
                metric.to_owned(),
                name.to_owned(),
                value,
                estimated.to_string(),
            ]);
        };
        if let Some(all) = self.rows {
            add("rows", "", all.count.to_string(), all.estimated);
        }
        for state in &self.states {
            add(
                "state",
                state.state,
                state.rows.count.to_string(),
                state.rows.estimated,
            );
        }
        for (metric, names) in [("client", &self.clients), ("provider", &self.providers)] {
            for name in names.iter().flat_map(|names| &names.top) {
                let label = name.name.as_deref().unwrap_or("");
                add(metric, label, name.rows.count.to_string(), name.rows.estimated);
            }
        }
        if let Some(again) = self.taken_over {
            add("taken_over", "", again.count.to_string(), again.estimated);
        }
        if let Some(due) = self.backlog.rows {
            add("backlog", "", due.count.to_string(), due.estimated);
        }
        if let Some(storage) = &self.storage {
            for (name, value) in [
                ("table_bytes", storage.table_bytes),
                ("index_bytes", storage.index_bytes),
                ("toast_bytes", storage.toast_bytes),
                ("total_bytes", storage.total_bytes),
            ] {
                add("size", name, value.to_string(), false);
            }
            add("dead_rows", "", storage.dead_rows.to_string(), true);
        }
        Some(rows)
    }
}

impl StatsView {
    fn expired_line(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.oldest_expired {
            // Where they could not be looked for, there is no line of their state either.
            None if !self.states.iter().any(|state| state.state == "expired") => {
                writeln!(out, "expired   unknown")
            }
            None => writeln!(out, "expired   none"),
            Some(oldest) => writeln!(
                out,
                "expired   the oldest is {} {}, lease over {}; next: idemctl list --state expired",
                printable(&oldest.client_id),
                printable(&oldest.key),
                oldest.over_seconds.map_or_else(|| "since ever".to_owned(), age)
            ),
        }
    }
}

impl StorageView {
    fn line(&self, out: &mut dyn Write, name: &str) -> io::Result<()> {
        write!(
            out,
            "{name:<9} {}: table {}, indexes {}, toast {}",
            bytes(self.total_bytes),
            bytes(self.table_bytes),
            bytes(self.index_bytes),
            bytes(self.toast_bytes)
        )?;
        if self.tables > 1 {
            write!(out, ", in {} partitions", self.tables)?;
        }
        writeln!(out)
    }

    fn housekeeping(&self, out: &mut dyn Write) -> io::Result<()> {
        let latest = |by_hand: Option<Timestamp>, auto: Option<Timestamp>, never: u64| {
            let at = by_hand
                .max(auto)
                .map_or_else(|| "never".to_owned(), |at| at.to_string());
            match never {
                1.. if self.tables > 1 => format!("{at} ({never} partitions never)"),
                _ => at,
            }
        };
        writeln!(
            out,
            "vacuum    ~{} dead rows; last vacuum {}, last analyze {}",
            self.dead_rows,
            latest(self.last_vacuum, self.last_autovacuum, self.never_vacuumed),
            latest(self.last_analyze, self.last_autoanalyze, self.never_analyzed)
        )
    }
}

impl BacklogView {
    fn line(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(
            out,
            "backlog   {} rows are past their retention",
            count(self.rows)
        )?;
        match (self.eta_seconds, self.rate_per_second) {
            (Some(_), _) if self.rows.is_some_and(|rows| rows.count == 0) => {}
            (Some(eta), Some(rate)) => {
                let by = match self.rate_source {
                    Some("given") => "as given",
                    _ => "as the last purges did",
                };
                write!(out, "; a purge takes about {} at {rate} rows/s, {by}", age(eta))?;
            }
            _ => write!(out, "; how long a purge takes is unknown (--rate)")?,
        }
        writeln!(out)
    }
}

impl NamesView {
    fn table(&self, out: &mut dyn Write, head: &str, none: &str) -> io::Result<()> {
        let heads = [head, "ROWS", "SHARE", "EXPIRED", "TAKEN_OVER"]
            .map(str::to_owned)
            .to_vec();
        let rows = self.top.iter().map(|name| {
            let estimated = name.rows.estimated;
            vec![
                name.name.as_deref().map_or_else(|| none.to_owned(), printable),
                count(Some(name.rows)),
                format!("{:.1} %", name.share * 100.0),
                number(name.expired, estimated),
                number(name.taken_over, estimated),
            ]
        });
        table::plain(out, heads, rows.collect())?;
        let shown = self.top.len() as u64;
        if self.known > shown {
            writeln!(out, "(and {} more; --top N)", self.known - shown)?;
        }
        Ok(())
    }
}

/// A count; `~` before an estimate, `+` behind one that ended at a limit.
fn count(count: Option<Count>) -> String {
    match count {
        None => "?".to_owned(),
        Some(Count {
            count,
            estimated,
            at_least,
        }) => {
            let more = if at_least { "+" } else { "" };
            format!("{}{more}", number(count, estimated))
        }
    }
}

fn number(number: u64, estimated: bool) -> String {
    if estimated {
        format!("~{number}")
    } else {
        number.to_string()
    }
}

/// A size as PostgreSQL's `pg_size_pretty` counts: 1 kB is 1024 bytes.
#[expect(
    clippy::cast_precision_loss,
    reason = "it is rounded to a digit behind the point"
)]
fn bytes(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if size < 1024.0 {
            return if unit == "B" {
                format!("{bytes} B")
            } else {
                format!("{size:.1} {unit}")
            };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TB")
}

/// A length of time that is a whole number of its largest unit.
fn short(seconds: u32) -> String {
    match seconds {
        86_400.. => format!("{}d", seconds / 86_400),
        3_600.. => format!("{}h", seconds / 3_600),
        60.. => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_exact_looks_so() {
        let number = |estimated, at_least| {
            count(Some(Count {
                count: 12,
                estimated,
                at_least,
            }))
        };
        assert_eq!(
            [number(false, false), number(true, false), number(false, true)],
            ["12", "~12", "12+"]
        );
        assert_eq!(count(None), "?");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536 * 1024), "1.5 MB");
        assert_eq!(AGE_ENDS.map(short).join(" "), "1m 10m 1h 6h 1d 7d");
    }
}

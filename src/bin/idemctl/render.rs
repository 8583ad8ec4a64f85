//! The only writer of stdout: views of the library's reports, in each format.

pub(crate) mod inspect;
pub(crate) mod janitor;
pub(crate) mod key;
pub(crate) mod mask;
pub(crate) mod provider;
pub(crate) mod purge;
pub(crate) mod release;

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::Format;
use crate::exit::{CliError, Result};

/// Something that is shown as one document.
pub(crate) trait Document: Serialize {
    /// For people. Every stored text goes through [`printable`].
    fn text(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Something that is shown as one row of a list.
pub(crate) trait Item: Serialize {
    /// Column heads.
    const COLUMNS: &'static [&'static str];
    /// The cells of one row, one for each column.
    fn cells(&self) -> Vec<String>;
    /// Client and key, for `-o ids`; `None` for a list of other things.
    fn id(&self) -> Option<(&str, &str)>;
}

/// Writes in the format that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    format: Format,
}

impl Printer {
    pub(crate) fn new(format: Format) -> Self {
        Self { format }
    }

    /// The format, for what only one of them needs.
    pub(crate) fn format(self) -> Format {
        self.format
    }

    /// One document.
    pub(crate) fn document(self, view: &impl Document) -> Result<()> {
        let mut out = stdout(self.format);
        match self.format {
            Format::Table => view.text(&mut out)?,
            Format::Json => {
                serde_json::to_writer_pretty(&mut out, view).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            Format::Jsonl => {
                serde_json::to_writer(&mut out, view).map_err(io::Error::from)?;
                writeln!(out)?;
            }
            Format::Csv => write_csv_document(&mut out, view)?,
            Format::Ids => return Err(CliError::usage("`-o ids` is for lists of keys")),
        }
        out.flush()?;
        Ok(())
    }

    /// Starts a list whose items come page by page, so that memory does not grow with the list.
    pub(crate) fn list(self) -> List {
        List {
            format: self.format,
            out: stdout(self.format),
            written: 0,
        }
    }
}

/// Plain text of a command whose output is text by nature (SQL, a URL).
pub(crate) fn raw(text: &str) -> Result<()> {
    let mut out = stdout(Format::Json);
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// stdout; for people without colour codes where they are not wanted, for programs byte for byte.
fn stdout(format: Format) -> Box<dyn Write> {
    match format {
        Format::Table => Box::new(io::BufWriter::new(anstream::stdout().lock())),
        _ => Box::new(io::BufWriter::new(io::stdout().lock())),
    }
}

/// A list being written.
pub(crate) struct List {
    format: Format,
    out: Box<dyn Write>,
    written: u64,
}

impl List {
    /// Writes one page.
    pub(crate) fn page<I: Item>(&mut self, items: &[I]) -> Result<()> {
        match self.format {
            Format::Table => self.table_page(items)?,
            Format::Json => {
                for item in items {
                    self.out
                        .write_all(if self.written == 0 { b"[\n  " } else { b",\n  " })?;
                    serde_json::to_writer(&mut self.out, item).map_err(io::Error::from)?;
                    self.written += 1;
                }
            }
            Format::Jsonl => {
                for item in items {
                    serde_json::to_writer(&mut self.out, item).map_err(io::Error::from)?;
                    writeln!(self.out)?;
                }
            }
            Format::Csv => {
                let mut csv = csv::Writer::from_writer(&mut self.out);
                if self.written == 0 {
                    csv.write_record(
                        I::COLUMNS
                            .iter()
                            .map(|name| name.to_lowercase().replace(' ', "_")),
                    )
                    .map_err(io_of)?;
                }
                for item in items {
                    csv.write_record(item.cells().iter().map(|cell| formula_safe(cell)))
                        .map_err(io_of)?;
                }
                csv.flush()?;
                drop(csv);
                self.written += 1;
            }
            Format::Ids => {
                for item in items {
                    let Some((client_id, key)) = item.id() else {
                        return Err(CliError::usage("`-o ids` is for lists of keys"));
                    };
                    if client_id.contains(['\t', '\n', '\r']) || key.contains(['\t', '\n', '\r']) {
                        anstream::eprintln!(
                            "note: {} {} left out: it holds a tab or a line break",
                            printable(client_id),
                            printable(key)
                        );
                        continue;
                    }
                    writeln!(self.out, "{client_id}\t{key}")?;
                }
            }
        }
        Ok(())
    }

    /// Ends the list; an empty one is `[]` in JSON.
    pub(crate) fn end(mut self) -> Result<()> {
        if self.format == Format::Json {
            self.out
                .write_all(if self.written == 0 { b"[]\n" } else { b"\n]\n" })?;
        }
        self.out.flush()?;
        Ok(())
    }

    fn table_page<I: Item>(&mut self, items: &[I]) -> io::Result<()> {
        if items.is_empty() {
            return Ok(());
        }
        let mut builder = tabled::builder::Builder::default();
        if self.written == 0 {
            builder.push_record(I::COLUMNS.iter().map(|name| name.to_uppercase()));
        }
        for item in items {
            builder.push_record(item.cells().iter().map(|cell| printable(cell)));
        }
        self.written += 1;
        let mut table = builder.build();
        table
            .with(tabled::settings::Style::blank())
            .with(tabled::settings::Padding::new(0, 1, 0, 0));
        for line in table.to_string().lines() {
            writeln!(self.out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn write_csv_document(out: &mut dyn Write, view: &impl Serialize) -> io::Result<()> {
    let value = serde_json::to_value(view).map_err(io::Error::from)?;
    let serde_json::Value::Object(members) = value else {
        return Ok(());
    };
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(members.keys()).map_err(io_of)?;
    let cells = members.values().map(|value| match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => formula_safe(text),
        other => other.to_string(),
    });
    csv.write_record(cells).map_err(io_of)?;
    csv.flush()
}

/// A cell that a spreadsheet would run as a formula is quoted with an apostrophe
/// (OWASP, "CSV Injection").
fn formula_safe(cell: &str) -> String {
    if cell.starts_with(['=', '+', '@', '\t', '\r'])
        || (cell.starts_with('-') && cell.parse::<f64>().is_err())
    {
        return format!("'{cell}");
    }
    cell.to_owned()
}

fn io_of(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Text as it may go to a terminal, in one line: control characters, and marks that reorder what is read, are
/// escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let reorders =
            matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || reorders {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The same for text of ours that has several lines.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

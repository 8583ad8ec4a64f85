//! The only writer of stdout: views of the library's reports, in each format.

pub(crate) mod adopt;
pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod event;
pub(crate) mod fingerprint;
pub(crate) mod inspect;
pub(crate) mod janitor;
mod json;
pub(crate) mod key;
pub(crate) mod live;
pub(crate) mod provider;
pub(crate) mod purge;
pub(crate) mod reconcile;
pub(crate) mod release;
pub(crate) mod resolve;
pub(crate) mod screen;
pub(crate) mod selftest;
pub(crate) mod stats;
pub(crate) mod styled;
mod table;
pub(crate) mod top;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::cli::Format;
use crate::exit::{CliError, Result};

/// Something that is shown as one document.
pub(crate) trait Document: Serialize {
    /// For people. Every stored text goes through [`printable`].
    fn text(&self, out: &mut dyn Write) -> io::Result<()>;

    /// Client and key of each, for `-o ids`; `None` for a document that is not about keys.
    fn ids(&self) -> Option<Vec<(&str, &str)>> {
        None
    }

    /// Head and rows for `-o csv`, where the document is a list inside; else its members become one row.
    fn csv(&self) -> Option<Vec<Vec<String>>> {
        None
    }
}

/// Something that is shown as one row of a list.
pub(crate) trait Item: Serialize {
    /// Column heads.
    const COLUMNS: &'static [&'static str];
    /// The cells of one row, one for each column.
    fn cells(&self) -> Vec<String>;
    /// Client and key, for `-o ids`; `None` for a list of other things.
    fn id(&self) -> Option<(&str, &str)>;
    /// Columns that a narrow terminal does without, the first of these first.
    const DISPENSABLE: &'static [&'static str] = &[];

    /// Head of `-o csv`, which is for programs: exact times and numbers where the table has "2h ago".
    const CSV_COLUMNS: &'static [&'static str] = Self::COLUMNS;
    /// One row of it.
    fn csv(&self) -> Vec<String> {
        self.cells()
    }
}

/// Writes in the format that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    format: Format,
    quiet: bool,
}

impl Printer {
    /// `quiet`: no notes on stderr.
    pub(crate) fn new(format: Format, quiet: bool) -> Self {
        Self { format, quiet }
    }

    /// Something worth knowing that is no error, on stderr.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            crate::exit::say(&format!("note: {}", printable_lines(text)));
        }
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
                json::write_pretty(&mut out, view)?;
                writeln!(out)?;
            }
            Format::Jsonl => {
                json::write(&mut out, view)?;
                writeln!(out)?;
            }
            Format::Csv => match view.csv() {
                Some(rows) => write_csv(&mut out, &rows)?,
                None => write_csv_document(&mut out, view)?,
            },
            Format::Ids => {
                for (client_id, key) in view.ids().ok_or_else(no_ids)? {
                    self.id(&mut out, client_id, key)?;
                }
            }
        }
        out.flush()?;
        Ok(())
    }

    /// One document in one line, for a stream of them.
    pub(crate) fn document_line(self, view: &impl Document) -> Result<()> {
        let format = Format::Jsonl;
        Self { format, ..self }.document(view)
    }

    /// Starts a list whose items come page by page, so that memory does not grow with the list.
    pub(crate) fn list(self) -> List {
        List {
            printer: self,
            out: stdout(self.format),
            written: 0,
            columns: None,
        }
    }

    /// One line of `-o ids`.
    fn id(self, out: &mut dyn Write, client_id: &str, key: &str) -> io::Result<()> {
        // What is read again by another idemctl must be a key to it.
        if let Err(error) = idemctl::key::KeyId::new(client_id, key) {
            self.note(&format!(
                "{} {} left out, because no idemctl would read it again: {error}",
                printable(client_id),
                printable(key)
            ));
            return Ok(());
        }
        writeln!(out, "{client_id}\t{key}")
    }
}

/// Plain text of a command whose output is text by nature (SQL, a URL).
pub(crate) fn raw(text: &str) -> Result<()> {
    let mut out = stdout(Format::Json);
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Text for people that is nothing but text; its styles go where colours are not wanted.
pub(crate) fn styled(text: &str) -> Result<()> {
    let mut out = stdout(Format::Table);
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// One line for people.
pub(crate) fn line(text: &str) -> Result<()> {
    let mut out = stdout(Format::Table);
    writeln!(out, "{}", printable(text))?;
    out.flush()?;
    Ok(())
}

/// Whether nobody reads stdout any more: a pipe whose other end is closed. Who prints seldom does not hear of it.
pub(crate) fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    poll(&mut fds, PollTimeout::ZERO).is_ok()
        && fds
            .iter()
            .any(|fd| fd.revents().is_some_and(|events| events.intersects(gone)))
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
    printer: Printer,
    out: Box<dyn Write>,
    written: u64,
    /// Which columns there is room for, as the first page showed.
    columns: Option<Vec<usize>>,
}

impl List {
    /// Writes one page.
    pub(crate) fn page<I: Item>(&mut self, items: &[I]) -> Result<()> {
        match self.printer.format {
            Format::Table => self.table_page(items)?,
            Format::Json => {
                for item in items {
                    self.out
                        .write_all(if self.written == 0 { b"[\n  " } else { b",\n  " })?;
                    json::write(&mut self.out, item)?;
                    self.written += 1;
                }
            }
            Format::Jsonl => {
                for item in items {
                    json::write(&mut self.out, item)?;
                    writeln!(self.out)?;
                }
            }
            Format::Csv => {
                let mut csv = csv::Writer::from_writer(&mut self.out);
                if self.written == 0 {
                    csv.write_record(I::CSV_COLUMNS).map_err(io_of)?;
                }
                for item in items {
                    csv.write_record(item.csv().iter().map(|cell| formula_safe(cell)))
                        .map_err(io_of)?;
                }
                csv.flush()?;
                drop(csv);
                self.written += 1;
            }
            Format::Ids => {
                for item in items {
                    let (client_id, key) = item.id().ok_or_else(no_ids)?;
                    self.printer.id(&mut self.out, client_id, key)?;
                }
            }
        }
        Ok(())
    }

    /// Ends the list; an empty one is `[]` in JSON.
    pub(crate) fn end(mut self) -> Result<()> {
        if self.printer.format == Format::Json {
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
        let cells: Vec<Vec<String>> = items
            .iter()
            .map(|item| item.cells().iter().map(|cell| printable(cell)).collect())
            .collect();
        let columns = self.columns.get_or_insert_with(|| table::fitting::<I>(&cells));
        let mut builder = tabled::builder::Builder::default();
        if self.written == 0 {
            builder.push_record(columns.iter().map(|column| I::COLUMNS[*column].to_uppercase()));
        }
        for row in &cells {
            builder.push_record(columns.iter().map(|column| row[*column].as_str()));
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

fn no_ids() -> CliError {
    CliError::usage("`-o ids` is for keys, and this command shows something else")
        .hint("use -o table, json, jsonl or csv")
}

fn write_csv(out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    for row in rows {
        csv.write_record(row.iter().map(|cell| formula_safe(cell)))
            .map_err(io_of)?;
    }
    csv.flush()
}

fn write_csv_document(out: &mut dyn Write, view: &impl Serialize) -> Result<()> {
    // Each member's own text, so that numbers keep their digits and no depth is too much.
    let text = serde_json::to_string(view).map_err(io::Error::from)?;
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(&text).map_err(io::Error::from)?;
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(members.keys()).map_err(io_of)?;
    let cells = members.values().map(|value| match value.get() {
        "null" => String::new(),
        text => {
            serde_json::from_str(text).map_or_else(|_| text.to_owned(), |text: String| formula_safe(&text))
        }
    });
    csv.write_record(cells).map_err(io_of)?;
    csv.flush()?;
    Ok(())
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
        if c.is_control() || deceives(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Marks that reorder what is read (Unicode Standard Annex #9), and line ends that are no control characters.
fn deceives(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The same for text of ours that has several lines.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n")
}

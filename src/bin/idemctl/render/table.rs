//! Tables that fit the terminal: columns are left out by priority rather than lines wrapped.

use std::io::{self, IsTerminal, Write};

use super::Item;

/// Blanks between two columns.
const GAP: usize = 2;

/// The columns there is room for on this terminal; all of them where stdout is none.
pub(super) fn fitting<I: Item>(cells: &[Vec<String>]) -> Vec<usize> {
    choose::<I>(cells, terminal_width().unwrap_or(usize::MAX))
}

/// How wide the terminal is that stdout leads to; `None` where it leads elsewhere.
pub(super) fn terminal_width() -> Option<usize> {
    let terminal = std::io::stdout().is_terminal();
    let size = terminal.then(terminal_size::terminal_size).flatten();
    size.map(|(width, _)| usize::from(width.0))
        .filter(|width| *width > 0)
}

fn choose<I: Item>(cells: &[Vec<String>], room: usize) -> Vec<usize> {
    let widths: Vec<usize> = I::COLUMNS
        .iter()
        .enumerate()
        .map(|(column, name)| {
            let widest = cells.iter().map(|row| width(&row[column]));
            widest.max().unwrap_or(0).max(name.len())
        })
        .collect();
    let mut kept: Vec<usize> = (0..I::COLUMNS.len()).collect();
    for name in I::DISPENSABLE {
        let total: usize = kept.iter().map(|column| widths[*column] + GAP).sum();
        // Nothing follows the last column.
        if total.saturating_sub(GAP) <= room {
            break;
        }
        kept.retain(|column| I::COLUMNS[*column] != *name);
    }
    kept
}

/// How many places a text takes on a terminal.
pub(super) fn width(text: &str) -> usize {
    tabled::grid::util::string::get_line_width(text)
}

/// A small table within a document; the cells can be printed as they are.
pub(super) fn plain(out: &mut dyn Write, head: Vec<String>, rows: Vec<Vec<String>>) -> io::Result<()> {
    let mut builder = tabled::builder::Builder::default();
    builder.push_record(head);
    for row in rows {
        builder.push_record(row);
    }
    let mut table = builder.build();
    table
        .with(tabled::settings::Style::blank())
        .with(tabled::settings::Padding::new(0, 1, 0, 0));
    writeln!(out)?;
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

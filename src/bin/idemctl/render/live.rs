//! A few lines that are drawn again in their place. The terminal stays in its ordinary mode and the last lines stay on
//! it, so nothing has to be put back, however the process ends.

use std::io::{self, IsTerminal, Write};

use super::styled::Line;
use crate::cli::Format;
use crate::exit::Result;

/// Where lines are drawn.
#[derive(Debug)]
pub(crate) struct Live {
    colour: bool,
    /// Rows of the last drawing, and the size of the terminal then.
    drawn: usize,
    size: Option<(usize, usize)>,
}

impl Live {
    /// `None` where nothing can be drawn in place: no terminal, a dumb one, or a format for programs.
    pub(crate) fn start(format: Format, term: Option<&str>) -> Option<Self> {
        let able = format == Format::Table && io::stdout().is_terminal() && term.is_some_and(|t| t != "dumb");
        able.then(|| Self {
            colour: anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
            drawn: 0,
            size: None,
        })
    }

    /// Columns.
    pub(crate) fn room() -> Option<usize> {
        size().map(|(columns, _)| columns)
    }

    /// Draws the lines over the last ones. `last`: all of them; otherwise as many as there is room for, since what has
    /// left the screen at the top can never be drawn over.
    pub(crate) fn draw(&mut self, lines: &[Line], last: bool) -> Result<()> {
        let size = size();
        let (columns, rows) = size.unwrap_or((usize::MAX, usize::MAX));
        let mut out = Vec::new();
        // A terminal that has another size now has broken its lines anew: nobody knows where the last drawing began.
        if self.drawn > 0 && self.size == size {
            write!(out, "\x1b[{}A\r", self.drawn)?;
        }
        self.drawn = 0;
        for line in lines {
            let height = line.width().div_ceil(columns).max(1);
            if !last && self.drawn + height >= rows {
                break;
            }
            self.drawn += height;
            // Cleared before it is written: behind a full line the last character would go.
            out.write_all(b"\x1b[2K")?;
            if self.colour {
                line.write(&mut out)?;
            } else {
                line.write_plain(&mut out)?;
            }
            out.write_all(b"\n")?;
        }
        out.write_all(b"\x1b[J")?;
        self.size = size;
        // At once, so that nobody sees half of it.
        let mut stdout = io::stdout().lock();
        stdout.write_all(&out)?;
        stdout.flush()?;
        Ok(())
    }
}

/// Columns and rows.
fn size() -> Option<(usize, usize)> {
    let (columns, rows) = terminal_size::terminal_size()?;
    Some((usize::from(columns.0), usize::from(rows.0))).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

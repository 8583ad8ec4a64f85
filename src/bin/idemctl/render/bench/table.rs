//! One scenario as people read it.

use std::io::{self, IsTerminal, Write};

use super::ResultView;

/// Longest bar, in characters.
const BAR: usize = 16;
/// Blanks between two columns.
const GAP: usize = 2;

const HEAD: [&str; 14] = [
    "STRATEGY",
    "PER SECOND",
    "OF FLOOR",
    "",
    "P50",
    "P95",
    "P99",
    "MAX",
    "LOSERS",
    "WAIT P50",
    "WAIT P99",
    "POOL FULL",
    "TWICE",
    "WAL/ANSWER",
];

/// Columns that a narrow terminal does without, the first of these first.
const DISPENSABLE: [&str; 7] = ["WAIT P50", "MAX", "P95", "", "WAIT P99", "POOL FULL", "P50"];

/// The table, as wide as the terminal allows; whole where there is none.
pub(super) fn write(out: &mut dyn Write, rows: &[&ResultView]) -> io::Result<()> {
    let most = rows.iter().filter_map(|row| row.ratio).fold(1.0, f64::max);
    let cells: Vec<[String; 14]> = std::iter::once(HEAD.map(str::to_owned))
        .chain(rows.iter().map(|row| cells(row, most)))
        .collect();
    let terminal = std::io::stdout().is_terminal();
    let width = terminal
        .then(terminal_size::terminal_size)
        .flatten()
        .map(|(width, _)| usize::from(width.0))
        .filter(|width| *width > 0);
    let kept = fitting(&cells, width.unwrap_or(usize::MAX));
    let mut builder = tabled::builder::Builder::default();
    for row in &cells {
        builder.push_record(kept.iter().map(|column| row[*column].as_str()));
    }
    let mut table = builder.build();
    table
        .with(tabled::settings::Style::blank())
        .with(tabled::settings::Padding::new(0, 1, 0, 0));
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn cells(row: &ResultView, most: f64) -> [String; 14] {
    [
        row.strategy.to_owned(),
        format!("{:.0}", row.per_second),
        row.ratio
            .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        row.ratio.map_or_else(String::new, |ratio| bar(ratio / most)),
        ms(row.claim.p50_seconds),
        ms(row.claim.p95_seconds),
        ms(row.claim.p99_seconds),
        ms(row.claim.max_seconds),
        percent(row.losers),
        ms(row.pool_wait.p50_seconds),
        ms(row.pool_wait.p99_seconds),
        percent(row.pool_saturated),
        row.doubles.to_string(),
        row.wal_bytes_per_answer
            .map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0} B")),
    ]
}

/// Which columns there is room for.
fn fitting(cells: &[[String; 14]], room: usize) -> Vec<usize> {
    let widest = |column: usize| {
        let widths = cells
            .iter()
            .map(|row| tabled::grid::util::string::get_line_width(&row[column]));
        widths.max().unwrap_or(0) + GAP
    };
    let mut kept: Vec<usize> = (0..HEAD.len()).collect();
    for name in DISPENSABLE {
        let total: usize = kept.iter().map(|column| widest(*column)).sum();
        if total.saturating_sub(GAP) <= room {
            break;
        }
        kept.retain(|column| HEAD[*column] != name);
    }
    kept
}

/// Eighths of a character, so that small differences can be seen.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "0 to 128"
    )]
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    match ms {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.0} ms"),
    }
}

/// A share that is nearly all is not called all.
fn percent(share: f64) -> String {
    let digits = usize::from(share > 0.99 && share < 1.0);
    format!("{:.digits$} %", share * 1e2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_keeps_what_counts() {
        let cells = vec![HEAD.map(str::to_owned)];
        assert_eq!(fitting(&cells, usize::MAX).len(), 14);
        let kept: Vec<&str> = fitting(&cells, 40)
            .into_iter()
            .map(|column| HEAD[column])
            .collect();
        assert_eq!(
            kept,
            [
                "STRATEGY",
                "PER SECOND",
                "OF FLOOR",
                "P99",
                "LOSERS",
                "TWICE",
                "WAL/ANSWER"
            ]
        );
    }

    #[test]
    fn bars_and_shares_show_small_differences() {
        assert_eq!(bar(0.5), "█".repeat(8));
        assert_eq!(bar(0.51), format!("{}▏", "█".repeat(8)));
        assert_eq!(
            (percent(0.996), percent(1.0)),
            ("99.6 %".to_owned(), "100 %".to_owned())
        );
    }
}

//! The screen of `top`: what stands where. It draws what the state says and asks nobody.

use anstyle::AnsiColor;
use idemctl::key::KeyId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap};

use super::printable;
use crate::settings::show_duration;
use crate::top::app::{App, Content, Mode, Pane};
use crate::top::rates::Sample;
use crate::top::view::Shown;

/// The smallest terminal on which all parts have a line.
const SMALLEST: (u16, u16) = (60, 18);

/// How things look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    /// Otherwise bold and reversed text alone.
    pub(crate) colour: bool,
}

impl Theme {
    fn of(self, style: anstyle::Style) -> Style {
        let mut shown = Style::new();
        if style.get_effects().contains(anstyle::Effects::BOLD) {
            shown = shown.add_modifier(Modifier::BOLD);
        }
        match style.get_fg_color() {
            Some(anstyle::Color::Ansi(colour)) if self.colour => shown.fg(ansi(colour)),
            _ => shown,
        }
    }

    fn coloured(self, colour: Color) -> Style {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        if self.colour { bold.fg(colour) } else { bold }
    }

    fn dim(self) -> Style {
        if self.colour {
            Style::new().fg(Color::DarkGray)
        } else {
            Style::new()
        }
    }
}

fn ansi(colour: AnsiColor) -> Color {
    match colour {
        AnsiColor::Green => Color::Green,
        AnsiColor::Cyan => Color::Cyan,
        AnsiColor::Yellow => Color::Yellow,
        _ => Color::Red,
    }
}

pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App, theme: Theme) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!(
            "{}x{} is too small: top needs {}x{}. q quits.",
            area.width, area.height, SMALLEST.0, SMALLEST.1
        );
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let events = (area.height / 5).clamp(2, 12);
    let [head, states, rates, keys, jobs, log, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Min(4),
        Constraint::Length(3),
        Constraint::Length(1 + events),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(frame, head, app, theme);
    draw_rates(frame, rates, app, theme);
    if let Some(shown) = &app.shown {
        draw_states(frame, states, shown, theme);
        draw_list(frame, jobs, "Janitor", &shown.jobs, theme);
        let title = match &app.client {
            Some(client) => format!("Last events of {}", printable(client)),
            None => "Last events".to_owned(),
        };
        draw_list(frame, log, &title, &shown.events, theme);
    }
    draw_keys(frame, keys, app, theme);
    draw_foot(frame, foot, app, theme);
    let within = |y: u16| Rect {
        y,
        height: foot.y - y,
        ..area
    };
    match &mut app.mode {
        Mode::Pane(pane) => draw_pane(frame, within(rates.y), pane, theme),
        Mode::Help => draw_help(frame, within(rates.y)),
        Mode::Reason { id, text } => draw_reason(frame, within(foot.y - 5), id, text),
        Mode::List => {}
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut spans = vec![Span::styled("idemctl top", bold), Span::raw("  ")];
    let as_of = app.shown.as_ref().map(|shown| shown.as_of.as_str());
    if let Some((seconds, _)) = &app.away {
        let old = as_of.map_or(String::new(), |as_of| format!("; all of this is of {as_of}"));
        let text = format!("NO ANSWER for {}{old}", super::key::age(*seconds));
        let style = theme.coloured(Color::Red).add_modifier(Modifier::REVERSED);
        spans.push(Span::styled(text, style));
    } else {
        let as_of = as_of.unwrap_or("looking ...");
        let every = show_duration(app.interval);
        spans.push(Span::raw(format!(
            "{as_of}  every {every}  {}",
            printable(&app.place)
        )));
    }
    frame.render_widget(Line::from(spans), area);
}

fn draw_states(frame: &mut Frame<'_>, area: Rect, shown: &Shown, theme: Theme) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let expired = if shown.any_expired {
        theme.coloured(Color::Yellow)
    } else {
        bold
    };
    let line = Line::from(vec![
        Span::raw("in progress "),
        Span::styled(shown.in_progress.as_str(), bold),
        Span::raw("   expired "),
        Span::styled(shown.expired.as_str(), expired),
        Span::raw(format!("   {}", shown.rest)),
    ]);
    frame.render_widget(line, area);
}

/// A name, and what it is of a sample.
type Rate = (&'static str, fn(&Sample) -> Option<f64>);

const RATES: [Rate; 3] = [
    ("claims/s", |sample| sample.inserted),
    ("updates/s", |sample| sample.updated),
    ("deletions/s", |sample| sample.deleted),
];

/// A name, a figure and a picture of the past for each; the newest on the right.
fn draw_rates(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let rows = Layout::vertical([Constraint::Length(1); 4]).split(area);
    for ((name, pick), row) in RATES.into_iter().zip(rows.iter()) {
        let now = app.rates.samples.back().and_then(pick);
        let now = now.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
        let data = app
            .rates
            .samples
            .iter()
            .map(|sample| pick(sample).map(hundredths));
        draw_rate(frame, *row, name, &now, data, theme.coloured(Color::Cyan));
    }
    let now = app.rates.samples.back().and_then(|sample| sample.expired);
    let now = now.map_or("-".to_owned(), |expired| expired.to_string());
    let data = app.rates.samples.iter().map(|sample| sample.expired);
    draw_rate(
        frame,
        rows[3],
        "expired",
        &now,
        data,
        theme.coloured(Color::Yellow),
    );
}

fn draw_rate(
    frame: &mut Frame<'_>,
    row: Rect,
    name: &str,
    now: &str,
    data: impl DoubleEndedIterator<Item = Option<u64>>,
    style: Style,
) {
    let [words, picture] = Layout::horizontal([Constraint::Length(24), Constraint::Min(10)]).areas(row);
    frame.render_widget(Line::raw(format!("{name:<12}{now:>10}")), words);
    let room = usize::from(picture.width);
    let newest: Vec<Option<u64>> = data.rev().take(room).collect();
    let data = newest.into_iter().rev().collect::<Vec<_>>();
    frame.render_widget(Sparkline::default().data(data).style(style), picture);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate of rows is not negative, and a picture needs no more"
)]
fn hundredths(rate: f64) -> u64 {
    (rate * 100.0).round() as u64
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, app: &mut App, theme: Theme) {
    let [title, area] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let of = app
        .client
        .as_ref()
        .map(|client| format!(" of {}", printable(client)));
    let text = format!("Expired keys{}, oldest first", of.unwrap_or_default());
    frame.render_widget(heading(&text, title.width), title);
    let Some(shown) = &app.shown else {
        return;
    };
    if shown.rows.is_empty() {
        frame.render_widget(Line::raw("none"), area);
        return;
    }
    let rows = shown.rows.iter().map(|row| Row::new(row.cells.clone()));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let widths = [
        Constraint::Fill(3),
        Constraint::Fill(4),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Fill(2),
        Constraint::Fill(3),
    ];
    let mut head = vec!["client", "key", "over", "attempt", "provider", "owner"];
    let mut widths = widths.to_vec();
    // A narrow terminal does without the holder.
    if area.width < 80 {
        head.pop();
        widths.pop();
    }
    let mark = if theme.colour {
        Style::new().bg(Color::Blue).fg(Color::White)
    } else {
        Style::new().add_modifier(Modifier::REVERSED)
    };
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(bold))
        .row_highlight_style(mark)
        .highlight_symbol("> ");
    let mut state = TableState::default()
        .with_offset(app.offset)
        .with_selected(Some(app.selected));
    frame.render_stateful_widget(table, area, &mut state);
    app.offset = state.offset();
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, title: &str, lines: &[String], theme: Theme) {
    let [head, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    frame.render_widget(heading(title, head.width), head);
    if lines.is_empty() {
        frame.render_widget(Line::styled("none", theme.dim()), rest);
        return;
    }
    let lines: Vec<Line<'_>> = lines.iter().map(|line| Line::raw(line.as_str())).collect();
    frame.render_widget(Text::from(lines), rest);
}

fn heading(title: &str, width: u16) -> Line<'static> {
    let rest = usize::from(width).saturating_sub(title.chars().count() + 1);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::from(vec![
        Span::styled(format!("{title} "), bold),
        Span::raw("─".repeat(rest)),
    ])
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, app: &App, theme: Theme) {
    let missing = app.shown.as_ref().and_then(|shown| shown.missing.first());
    let line = match (&app.mode, &app.note, missing) {
        (Mode::Reason { .. }, ..) => Line::raw("Enter: go on to the question   Esc: change nothing"),
        (Mode::List, None, _) if app.away.is_some() => {
            let why = app.away.as_ref().map_or("", |(_, why)| why.as_str());
            Line::styled(printable(&format!("database: {why}")), theme.coloured(Color::Red))
        }
        (_, Some(note), _) => Line::styled(note.as_str(), theme.coloured(Color::Yellow)),
        (Mode::Pane(_), ..) => Line::raw("Up/Down scroll  p ask provider  r reconcile  Esc back"),
        (Mode::Help, ..) => Line::raw("any key: back"),
        (Mode::List, None, Some(missing)) => {
            Line::styled(format!("not known: {missing}"), theme.coloured(Color::Yellow))
        }
        (Mode::List, None, None) => Line::raw("Enter inspect  p ask provider  r reconcile  ? help  q quit"),
    };
    frame.render_widget(line, area);
}

fn draw_pane(frame: &mut Frame<'_>, area: Rect, pane: &mut Pane, theme: Theme) {
    let block = Block::bordered().title(format!(" {} ", printable(&pane.id.to_string())));
    let inner = block.inner(area);
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    let lines: Vec<Line<'_>> = match &pane.content {
        Content::Waiting(text) => vec![Line::raw(*text)],
        Content::Failed(text) => {
            let room = Some(usize::from(inner.width));
            let style = anstyle::Style::new().bold();
            let lines = super::styled::hanging(super::styled::Line::default(), style, text, room);
            lines.iter().map(|line| line_of(line, theme)).collect()
        }
        Content::Key(view) => {
            let lines = view.lines_advice_first(Some(usize::from(inner.width)));
            lines.iter().map(|line| line_of(line, theme)).collect()
        }
    };
    let height = usize::from(inner.height);
    pane.scroll = pane.scroll.min(lines.len().saturating_sub(height));
    let seen: Vec<Line<'_>> = lines.into_iter().skip(pane.scroll).take(height).collect();
    frame.render_widget(Text::from(seen), inner);
}

fn draw_reason(frame: &mut Frame<'_>, area: Rect, id: &KeyId, text: &str) {
    let block = Block::bordered().title(format!(" reconcile {} ", printable(&id.to_string())));
    let inner = block.inner(area);
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    // The end of what is typed stays in sight.
    let room = usize::from(inner.width).saturating_sub(1);
    let text = printable(text);
    let from = text.chars().count().saturating_sub(room);
    let seen: String = text.chars().skip(from).chain(['_']).collect();
    let lines = vec![
        Line::raw("Why? For the event log; may be empty."),
        Line::raw(""),
        Line::raw(seen),
    ];
    frame.render_widget(Text::from(lines), inner);
}

fn line_of(line: &super::styled::Line, theme: Theme) -> Line<'static> {
    let spans = line
        .0
        .iter()
        .map(|(style, text)| Span::styled(text.clone(), theme.of(*style)));
    Line::from(spans.collect::<Vec<_>>())
}

const HELP: &str = "\
Up Down j k   select an expired key; PageUp PageDown g G further
Enter         inspect it: what happened, what it means, what is safe
p             the same, and ask its provider
r             run `idemctl reconcile` on it, which shows what it
              would do and asks; then back here
+ -           look less often, more often
q Esc         quit      Ctrl-Z suspend

Rates come from the server's own counters between two looks: claims are
rows inserted, updates are completions, renewals and takeovers, deletions
are purged, released and given-back rows. Counts end at 10000 (+);
~ is the planner's estimate.";

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let block = Block::bordered().title(" Keys ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}

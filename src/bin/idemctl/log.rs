//! Logs, and everything else that goes to stderr: as text, as JSON, or as journald takes it.
//!
//! Under systemd, where stderr leads to the journal (`JOURNAL_STREAM`, `systemd.exec(5)`), an event goes there with its
//! values as fields; where that cannot be, and for all else, a line of text begins with its priority as `sd-daemon(3)`
//! describes, and has no time of its own, since the journal has one.

mod journal;

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};

use chrono::SecondsFormat;
use idemctl::janitor::clock::Clock;
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use crate::render::printable;

/// `--log-format`, `[log] format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Lines for people; for journald under systemd.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// As the file has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Style {
    Text,
    Journal,
    Json,
}

/// The style in force; plain text before anything is known.
static STYLE: AtomicU8 = AtomicU8::new(Style::Text as u8);

fn style() -> Style {
    match STYLE.load(Ordering::Relaxed) {
        1 => Style::Journal,
        2 => Style::Json,
        _ => Style::Text,
    }
}

/// Settles how lines look. `journal`: the value of `JOURNAL_STREAM`.
pub(crate) fn settle(format: LogFormat, journal: Option<&str>) {
    let style = match format {
        LogFormat::Json => Style::Json,
        LogFormat::Text if journal.is_some_and(leads_to) => Style::Journal,
        LogFormat::Text => Style::Text,
    };
    STYLE.store(style as u8, Ordering::Relaxed);
}

/// Whether stderr is what `DEVICE:INODE` names. It may have been redirected since the manager set the variable.
fn leads_to(journal: &str) -> bool {
    let Ok(stderr) = nix::sys::stat::fstat(std::io::stderr()) else {
        return false;
    };
    journal == format!("{}:{}", stderr.st_dev, stderr.st_ino)
}

/// Sends what the program traces to stderr, up to this level.
pub(crate) fn start(level: tracing_subscriber::filter::LevelFilter) {
    // A second call (in-process tests) keeps the first subscriber.
    let _already_set = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_max_level(level)
        .event_format(Lines)
        .try_init();
}

/// One line for stderr that is no trace: an error, a hint, a note, a question's preview. With JSON it is an object
/// like any other. Where stderr is closed or full nobody can be told, and the exit code still speaks.
pub(crate) fn say(level: Level, text: &str) {
    use std::io::Write;
    let mut out = anstream::stderr().lock();
    let _nobody_listens = match style() {
        Style::Text => writeln!(out, "{text}"),
        Style::Journal => {
            let priority = priority(level);
            let mut lines = text.lines();
            lines.try_for_each(|line| writeln!(out, "<{priority}>{line}"))
        }
        Style::Json => {
            let line = Line::new(level, text.to_owned(), Map::new());
            writeln!(out, "{}", line.json())
        }
    };
}

/// `syslog(3)`'s number for a level: error, warning, informational, debug.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// A line of JSON.
#[derive(serde::Serialize)]
struct Line {
    /// RFC 3339, UTC.
    time: String,
    level: String,
    message: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    fields: Map<String, Value>,
}

impl Line {
    fn new(level: Level, message: String, fields: Map<String, Value>) -> Self {
        Self {
            time: now(),
            level: level.as_str().to_lowercase(),
            message,
            fields,
        }
    }

    fn json(&self) -> String {
        // Unwrap safety: strings, numbers and maps with string keys always have a JSON form; an empty object says
        // more than a panic in the log would.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

fn now() -> String {
    Clock::system().now().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Writes events in the style in force. Spans are not used in this program.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &tracing_subscriber::fmt::FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        let mut seen = Seen::default();
        event.record(&mut seen);
        match style() {
            Style::Json => {
                let fields = seen
                    .fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value));
                let line = Line::new(level, seen.message, fields.collect());
                writeln!(out, "{}", line.json())
            }
            Style::Journal => {
                let (priority, text) = (priority(level), seen.text());
                if journal::send(priority, &text, &seen.fields) {
                    return Ok(());
                }
                writeln!(out, "<{priority}>{text}")
            }
            Style::Text if out.has_ansi_escapes() => {
                let colour = anstyle::Style::new().fg_color(Some(colour(level).into()));
                writeln!(out, "{} {colour}{level:>5}{colour:#} {}", now(), seen.text())
            }
            Style::Text => writeln!(out, "{} {level:>5} {}", now(), seen.text()),
        }
    }
}

fn colour(level: Level) -> anstyle::AnsiColor {
    match level {
        Level::ERROR => anstyle::AnsiColor::Red,
        Level::WARN => anstyle::AnsiColor::Yellow,
        Level::INFO => anstyle::AnsiColor::Green,
        _ => anstyle::AnsiColor::Blue,
    }
}

/// What an event carries.
#[derive(Default)]
struct Seen {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Seen {
    /// In one line, whatever is in the values.
    fn text(&self) -> String {
        let mut text = printable(&self.message);
        for (name, value) in &self.fields {
            let value = match value {
                Value::String(value) => printable(value),
                other => other.to_string(),
            };
            // Writing to a string does not fail.
            let _ = write!(text, " {name}={value}");
        }
        text
    }

    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("message", other) => self.message = other.to_string(),
            // What the bridge from the crate `log` adds.
            (name, _) if name.starts_with("log.") => {}
            (name, value) => self.fields.push((name, value)),
        }
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

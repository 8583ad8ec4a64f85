//! The state of the screen, and what each key does to it. Nothing here talks to anybody.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use idemctl::key::KeyId;

use super::rates::Rates;
use super::view::Shown;
use crate::render::inspect::InspectView;

/// Steps of `+` and `-`.
const INTERVALS: [Duration; 8] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(1),
    Duration::from_mins(5),
];

/// Longest reason that can be typed, in characters.
const LONGEST_REASON: usize = 200;

/// What is shown.
#[derive(Debug)]
pub(crate) struct App {
    /// Which database.
    pub(crate) place: String,
    /// Whose expired keys and events alone.
    pub(crate) client: Option<String>,
    pub(crate) interval: Duration,
    pub(crate) shown: Option<Shown>,
    pub(crate) rates: Rates,
    /// For how many seconds the database has not answered, and why.
    pub(crate) away: Option<(f64, String)>,
    pub(crate) selected: usize,
    /// First row of the list that is seen; the drawing keeps it.
    pub(crate) offset: usize,
    pub(crate) mode: Mode,
    /// Something to say once, until the next key.
    pub(crate) note: Option<String>,
}

/// Where keys go.
#[derive(Debug)]
pub(crate) enum Mode {
    List,
    Pane(Pane),
    Help,
    /// The reason of a reconcile is typed.
    Reason {
        id: KeyId,
        text: String,
    },
}

/// One key, in front of the list.
#[derive(Debug)]
pub(crate) struct Pane {
    pub(crate) id: KeyId,
    pub(crate) content: Content,
    /// First line that is seen; the drawing bounds it.
    pub(crate) scroll: usize,
}

/// What a pane holds.
#[derive(Debug)]
pub(crate) enum Content {
    Waiting(&'static str),
    Key(Box<InspectView>),
    Failed(String),
}

/// What somebody else has to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    Interrupt,
    Suspend,
    /// The interval changed.
    Look,
    Inspect(KeyId),
    Ask(KeyId),
    Reconcile {
        id: KeyId,
        reason: Option<String>,
    },
}

impl App {
    pub(crate) fn new(place: String, client: Option<String>, interval: Duration) -> Self {
        Self {
            place,
            client,
            interval,
            shown: None,
            rates: Rates::default(),
            away: None,
            selected: 0,
            offset: 0,
            mode: Mode::List,
            note: None,
        }
    }

    /// A new look. The same key stays selected wherever it stands now.
    pub(crate) fn show(&mut self, shown: Shown) {
        let before = self.selected_id();
        let place = before.and_then(|id| shown.rows.iter().position(|row| row.id == id));
        self.selected = place.unwrap_or(self.selected);
        self.selected = self.selected.min(shown.rows.len().saturating_sub(1));
        self.shown = Some(shown);
        self.away = None;
    }

    /// A pane's content arrived; too late if somebody went on meanwhile.
    pub(crate) fn fill(&mut self, id: &KeyId, content: Content) {
        if let Mode::Pane(pane) = &mut self.mode
            && pane.id == *id
        {
            pane.content = content;
        }
    }

    pub(crate) fn on_key(&mut self, key: KeyEvent) -> Option<Action> {
        self.note = None;
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Some(Action::Interrupt),
            KeyCode::Char('z') if control => return Some(Action::Suspend),
            // No other key with Control means anything; Ctrl-R is no `r`.
            KeyCode::Char(_) if control => return None,
            _ => {}
        }
        match &mut self.mode {
            Mode::Reason { .. } => self.in_reason(key.code),
            Mode::Help => {
                self.mode = Mode::List;
                None
            }
            Mode::Pane(_) => self.in_pane(key.code),
            Mode::List => self.in_list(key.code),
        }
    }

    fn in_list(&mut self, code: KeyCode) -> Option<Action> {
        let last = self.shown.as_ref().map_or(0, |shown| shown.rows.len());
        let last = last.saturating_sub(1);
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('j') | KeyCode::Down => self.selected = (self.selected + 1).min(last),
            KeyCode::Char('k') | KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Char('g') | KeyCode::Home => self.selected = 0,
            KeyCode::Char('G') | KeyCode::End => self.selected = last,
            KeyCode::PageDown => self.selected = (self.selected + PAGE).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::Char('+' | '=') => return self.step(true),
            KeyCode::Char('-') => return self.step(false),
            KeyCode::Enter => {
                let id = self.selected_or_note()?;
                return Some(self.open(id, false));
            }
            KeyCode::Char('p') => {
                let id = self.selected_or_note()?;
                return Some(self.open(id, true));
            }
            KeyCode::Char('r') => {
                let id = self.selected_or_note()?;
                self.ask_reason(id);
            }
            _ => {}
        }
        None
    }

    fn in_pane(&mut self, code: KeyCode) -> Option<Action> {
        let Mode::Pane(pane) = &mut self.mode else {
            return None;
        };
        let id = pane.id.clone();
        match code {
            KeyCode::Char('q') | KeyCode::Esc => self.mode = Mode::List,
            KeyCode::Char('j') | KeyCode::Down => pane.scroll += 1,
            KeyCode::Char('k') | KeyCode::Up => pane.scroll = pane.scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => pane.scroll += PAGE,
            KeyCode::PageUp => pane.scroll = pane.scroll.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => pane.scroll = 0,
            KeyCode::Enter => return Some(self.open(id, false)),
            KeyCode::Char('p') => return Some(self.open(id, true)),
            KeyCode::Char('r') => self.ask_reason(id),
            _ => {}
        }
        None
    }

    fn in_reason(&mut self, code: KeyCode) -> Option<Action> {
        let Mode::Reason { id, text } = &mut self.mode else {
            return None;
        };
        match code {
            KeyCode::Esc => {
                self.mode = Mode::List;
                self.note = Some("not reconciled; nothing was changed".to_owned());
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(c) if text.chars().count() < LONGEST_REASON => text.push(c),
            KeyCode::Enter => {
                let reason = Some(std::mem::take(text)).filter(|text| !text.trim().is_empty());
                let id = id.clone();
                self.mode = Mode::List;
                return Some(Action::Reconcile { id, reason });
            }
            _ => {}
        }
        None
    }

    fn open(&mut self, id: KeyId, ask: bool) -> Action {
        let waiting = if ask {
            "asking the provider ..."
        } else {
            "reading ..."
        };
        self.mode = Mode::Pane(Pane {
            id: id.clone(),
            content: Content::Waiting(waiting),
            scroll: 0,
        });
        if ask { Action::Ask(id) } else { Action::Inspect(id) }
    }

    fn ask_reason(&mut self, id: KeyId) {
        self.mode = Mode::Reason {
            id,
            text: String::new(),
        };
    }

    fn selected_id(&self) -> Option<KeyId> {
        let row = self.shown.as_ref()?.rows.get(self.selected)?;
        Some(row.id.clone())
    }

    fn selected_or_note(&mut self) -> Option<KeyId> {
        let id = self.selected_id();
        if id.is_none() {
            self.note = Some("no expired key is selected".to_owned());
        }
        id
    }

    /// Longer or shorter, to the next step.
    fn step(&mut self, longer: bool) -> Option<Action> {
        let mut steps = INTERVALS.iter();
        let next = if longer {
            steps.find(|step| **step > self.interval)
        } else {
            steps.rfind(|step| **step < self.interval)
        };
        self.interval = *next?;
        Some(Action::Look)
    }
}

const PAGE: usize = 10;

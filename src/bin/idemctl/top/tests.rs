//! Keys and drawings, without a terminal.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use idemctl::key::KeyId;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::app::{Action, App, Content, Mode};
use super::rates::Sample;
use super::view::{Row, Shown};
use crate::render::top::{Theme, draw};

fn row(n: usize) -> Row {
    let key = format!("order-{n}");
    Row {
        id: KeyId::new("shop-1", &key).unwrap(),
        cells: ["shop-1", &key, "14m00s", "1", "acme", "pay-7f9c:4121:9d2c"].map(str::to_owned),
    }
}

fn shown(keys: impl IntoIterator<Item = usize>) -> Shown {
    let rows: Vec<Row> = keys.into_iter().map(row).collect();
    Shown {
        as_of: "2026-11-29T10:00:00Z".to_owned(),
        in_progress: "12".to_owned(),
        expired: format!("{} (oldest 14m00s)", rows.len()),
        any_expired: !rows.is_empty(),
        rest: "newest 10000: done 9900 failed 12   all ~1234567".to_owned(),
        rows,
        jobs: vec![
            "purge    ok 3m10s ago: deleted 512 in 1 batches, nothing left".to_owned(),
            "expired  running for 2.1s by janitor-1:77:ab; before that: ok 1m00s ago: 3 seen".to_owned(),
        ],
        events: (1..=12)
            .map(|n| {
                format!("  {n}m00s ago  release shop-1 order-{n} by alice@ops-1 (database user ops): ticket")
            })
            .collect(),
        missing: Vec::new(),
    }
}

fn app(keys: usize) -> App {
    let mut app = App::new(
        "pay on db-1 schema public".to_owned(),
        None,
        Duration::from_secs(2),
    );
    app.show(shown(1..=keys));
    for n in 0..100_u32 {
        let rate = f64::from(n % 20);
        app.rates.samples.push_back(Sample {
            inserted: Some(rate),
            updated: (n != 50).then_some(rate * 2.0),
            deleted: Some(if n < 90 { 0.0 } else { 500.25 }),
            expired: Some(u64::from(n / 30)),
        });
    }
    app
}

fn drawn(app: &mut App, columns: u16, rows: u16, colour: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, app, Theme { colour })).unwrap();
    terminal
}

fn press(app: &mut App, code: KeyCode) -> Option<Action> {
    app.on_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn id(n: usize) -> KeyId {
    row(n).id
}

#[test]
fn screens() {
    for (name, columns, rows) in [
        ("80x24", 80, 24),
        ("120x40", 120, 40),
        ("60x18", 60, 18),
        ("tiny", 40, 10),
    ] {
        let mut app = app(30);
        insta::assert_snapshot!(name, drawn(&mut app, columns, rows, true).backend());
    }
    let mut empty = app(0);
    empty.client = Some("shop-1".to_owned());
    empty.shown.as_mut().unwrap().events.clear();
    insta::assert_snapshot!("empty", drawn(&mut empty, 80, 24, true).backend());
    let mut stale = app(3);
    stale.away = Some((12.0, "connection refused".to_owned()));
    insta::assert_snapshot!("stale", drawn(&mut stale, 80, 24, true).backend());
    let mut help = app(3);
    press(&mut help, KeyCode::Char('?'));
    insta::assert_snapshot!("help", drawn(&mut help, 80, 24, true).backend());
    let mut reason = app(3);
    press(&mut reason, KeyCode::Char('r'));
    "why\u{1b}"
        .chars()
        .for_each(|c| drop(press(&mut reason, KeyCode::Char(c))));
    insta::assert_snapshot!("reason", drawn(&mut reason, 80, 24, true).backend());
}

#[test]
fn without_colour_no_cell_has_one() {
    let coloured = |colour| {
        let mut app = app(3);
        let terminal = drawn(&mut app, 80, 24, colour);
        let mut cells = terminal.backend().buffer().content().iter();
        cells.any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(true));
    assert!(!coloured(false));
}

#[test]
fn the_same_key_stays_selected() {
    let mut app = app(5);
    press(&mut app, KeyCode::Char('j'));
    press(&mut app, KeyCode::Down);
    assert_eq!(press(&mut app, KeyCode::Enter), Some(Action::Inspect(id(3))));
    press(&mut app, KeyCode::Esc);
    // Two that were above it are gone.
    app.show(shown(3..=5));
    assert_eq!(press(&mut app, KeyCode::Char('p')), Some(Action::Ask(id(3))));
    press(&mut app, KeyCode::Char('q'));
    // It is gone itself: the place stays, within the list.
    app.show(shown([4]));
    assert_eq!(press(&mut app, KeyCode::Enter), Some(Action::Inspect(id(4))));
    press(&mut app, KeyCode::Esc);
    app.show(shown([]));
    assert_eq!(press(&mut app, KeyCode::Enter), None);
    assert!(app.note.is_some());
    for code in [KeyCode::Down, KeyCode::End, KeyCode::PageDown, KeyCode::Up] {
        assert_eq!(press(&mut app, code), None);
    }
}

#[test]
fn reconcile_takes_the_key_that_was_named() {
    let mut app = app(5);
    press(&mut app, KeyCode::Char('r'));
    // Meanwhile the list moves on.
    app.show(shown(2..=5));
    for c in "tickeX\u{8}t 7".chars() {
        let code = if c == '\u{8}' {
            KeyCode::Backspace
        } else {
            KeyCode::Char(c)
        };
        assert_eq!(press(&mut app, code), None);
    }
    let reason = Some("ticket 7".to_owned());
    assert_eq!(
        press(&mut app, KeyCode::Enter),
        Some(Action::Reconcile { id: id(1), reason })
    );
    press(&mut app, KeyCode::Char('r'));
    assert_eq!(press(&mut app, KeyCode::Esc), None);
    assert!(matches!(app.mode, Mode::List));
    // A blank reason is none.
    press(&mut app, KeyCode::Char('r'));
    press(&mut app, KeyCode::Char(' '));
    let action = press(&mut app, KeyCode::Enter);
    assert_eq!(
        action,
        Some(Action::Reconcile {
            id: id(2),
            reason: None
        })
    );
}

#[test]
fn keys_that_quit_and_keys_that_go_back() {
    let mut app = app(5);
    for code in [KeyCode::Char('q'), KeyCode::Esc] {
        assert_eq!(press(&mut app, code), Some(Action::Quit));
        press(&mut app, KeyCode::Enter);
        assert_eq!(press(&mut app, code), None);
        press(&mut app, KeyCode::Char('?'));
        assert_eq!(press(&mut app, code), None);
    }
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    for code in [KeyCode::Enter, KeyCode::Char('r')] {
        press(&mut app, code);
        assert_eq!(app.on_key(control('r')), None);
        assert_eq!(app.on_key(control('c')), Some(Action::Interrupt));
        assert_eq!(app.on_key(control('z')), Some(Action::Suspend));
    }
}

#[test]
fn the_interval_goes_in_steps() {
    let mut app = app(0);
    assert_eq!(press(&mut app, KeyCode::Char('+')), Some(Action::Look));
    assert_eq!(app.interval, Duration::from_secs(5));
    for _ in 0..20 {
        press(&mut app, KeyCode::Char('-'));
    }
    assert_eq!(app.interval, Duration::from_millis(500));
    assert_eq!(press(&mut app, KeyCode::Char('-')), None);
}

#[test]
fn an_answer_that_comes_late_is_not_shown_for_another_key() {
    let mut app = app(5);
    press(&mut app, KeyCode::Enter);
    press(&mut app, KeyCode::Esc);
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    app.fill(&id(1), Content::Failed("of the first".to_owned()));
    let Mode::Pane(pane) = &app.mode else {
        panic!("a pane");
    };
    assert!(matches!(pane.content, Content::Waiting(_)));
    app.fill(&id(2), Content::Failed("of the second".to_owned()));
    let screen = drawn(&mut app, 80, 24, true).backend().to_string();
    assert!(screen.contains("of the second"), "{screen}");
}

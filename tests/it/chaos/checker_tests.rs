//! The checker on histories made by hand: a sound one, and one for each broken promise.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::checker::{Violation, check};
use super::history::{Call, Charge, Exchange, Heard, History, Id, Row, Wish};

/// When all this began.
static T0: LazyLock<Instant> = LazyLock::new(Instant::now);

fn id() -> Id {
    Id::new("shop-1", "order-1")
}

fn heard(status: u16, body: &str) -> Heard {
    Heard::Answer {
        status,
        replayed: true,
        body: body.into(),
    }
}

fn paid() -> Heard {
    heard(201, r#"{"charge_id":"ch_1","amount":100}"#)
}

fn asked(amount: u64, heard: Heard) -> Exchange {
    Exchange {
        wish: Wish {
            id: id(),
            amount,
            declined: false,
            wrong: false,
        },
        heard,
        service: 0,
        started: *T0,
        ended: *T0,
    }
}

/// From one second of the run to another.
fn at(started: u64, ended: u64, exchange: Exchange) -> Exchange {
    Exchange {
        started: *T0 + Duration::from_secs(started),
        ended: *T0 + Duration::from_secs(ended),
        ..exchange
    }
}

fn call(started: u64, ended: Option<u64>) -> Call {
    Call {
        order_id: id().order(),
        started_us: started,
        ended_us: ended,
    }
}

fn nothing() -> Heard {
    Heard::Nothing("timed out".to_owned())
}

fn charge(charge: &str) -> Charge {
    Charge {
        id: charge.to_owned(),
        order_id: id().order(),
        idempotency_key: None,
        amount: 100,
    }
}

fn row(status: &str, code: i32, body: &str) -> Row {
    Row {
        id: id(),
        status: status.to_owned(),
        status_code: Some(code),
        body: Some(body.into()),
        attempt: 2,
    }
}

/// A time-out, a 409, the answer, and its repeat; one charge, and the row.
fn sound() -> History {
    History {
        exchanges: vec![
            asked(100, nothing()),
            asked(100, heard(409, "busy")),
            asked(100, paid()),
            asked(100, paid()),
        ],
        ledger: vec![charge("ch_1")],
        rows: vec![row("done", 201, r#"{"charge_id":"ch_1","amount":100}"#)],
        calls: vec![call(0, None), call(1, Some(2))],
        calm: true,
        ..History::default()
    }
}

/// A declined card.
fn declined() -> History {
    let mut history = History {
        exchanges: vec![asked(100, heard(502, "unknown")), asked(100, heard(402, "no"))],
        ledger: vec![],
        rows: vec![row("done", 402, "no")],
        ..History::default()
    };
    for exchange in &mut history.exchanges {
        exchange.wish.declined = true;
    }
    history
}

/// A sound history with something done to it, and all that is found then.
#[track_caller]
fn broken(break_it: impl FnOnce(&mut History), expected: &[Violation]) {
    let mut history = sound();
    break_it(&mut history);
    assert_eq!(check(&history), expected);
}

#[test]
fn sound_histories_pass() {
    assert_eq!(check(&sound()), []);
    assert_eq!(check(&declined()), []);
    assert_eq!(check(&History::default()), []);
    // The same amounts race under one key: one is paid, the other refused.
    let mut raced = sound();
    raced.exchanges.push(asked(300, heard(422, "mismatch")));
    assert_eq!(check(&raced), []);
}

#[test]
fn money() {
    broken(
        |history| history.ledger.push(charge("ch_2")),
        &[Violation::ChargedTwice {
            id: id(),
            charges: vec!["ch_1".to_owned(), "ch_2".to_owned()],
        }],
    );
    broken(
        |history| history.ledger.clear(),
        &[Violation::NotCharged { id: id() }],
    );
    broken(
        |history| history.ledger[0].id = "ch_7".to_owned(),
        &[Violation::OtherCharge {
            id: id(),
            told: "ch_1".to_owned(),
        }],
    );
    broken(
        |history| history.ledger[0].amount = 300,
        &[Violation::WrongAmount {
            id: id(),
            amount: 300,
        }],
    );
    broken(
        |history| {
            history.ledger.push(Charge {
                order_id: "of-nobody".to_owned(),
                ..charge("ch_2")
            });
        },
        &[Violation::Foreign {
            order: "of-nobody".to_owned(),
        }],
    );
    let mut history = declined();
    history.ledger.push(charge("ch_1"));
    assert_eq!(
        check(&history),
        [
            Violation::Untold {
                id: id(),
                charge: "ch_1".to_owned()
            },
            Violation::WrongAmount {
                id: id(),
                amount: 100
            },
            Violation::DeclinedYetCharged {
                id: id(),
                charge: "ch_1".to_owned()
            },
        ]
    );
}

#[test]
fn a_mismatch_is_never_charged() {
    // Refused, yet charged: also twice.
    broken(
        |history| {
            history.exchanges.push(asked(300, heard(422, "mismatch")));
            history.exchanges[4].wish.wrong = true;
            history.ledger.push(Charge {
                amount: 300,
                ..charge("ch_2")
            });
        },
        &[
            Violation::ChargedTwice {
                id: id(),
                charges: vec!["ch_1".to_owned(), "ch_2".to_owned()],
            },
            Violation::WrongAmount {
                id: id(),
                amount: 300,
            },
        ],
    );
    // Answered with what another request had got.
    broken(
        |history| history.exchanges.push(asked(300, paid())),
        &[Violation::OthersAnswer {
            id: id(),
            amount: 300,
        }],
    );
    broken(
        |history| history.exchanges[3].wish.wrong = true,
        &[Violation::OthersAnswer {
            id: id(),
            amount: 100,
        }],
    );
    broken(
        |history| history.exchanges[3].wish.declined = true,
        &[Violation::OthersAnswer {
            id: id(),
            amount: 100,
        }],
    );
}

#[test]
fn answers() {
    let other = r#"{"charge_id":"ch_1", "amount":100}"#;
    broken(
        |history| history.exchanges[3].heard = heard(201, other),
        &[
            Violation::AnswersDiffer {
                id: id(),
                first: r#"201 {"charge_id":"ch_1","amount":100}"#.to_owned(),
                other: format!("201 {other}"),
            },
            Violation::AnswerLost {
                id: id(),
                stored: r#"done 201 {"charge_id":"ch_1","amount":100}"#.to_owned(),
            },
        ],
    );
    broken(
        |history| history.rows.clear(),
        &[Violation::AnswerLost {
            id: id(),
            stored: "no row".to_owned(),
        }],
    );
    broken(
        |history| history.exchanges[1].heard = heard(500, "panic"),
        &[Violation::Unexpected {
            id: id(),
            answer: "500 panic".to_owned(),
        }],
    );
}

#[test]
fn the_end() {
    broken(
        |history| history.exchanges.push(asked(300, heard(409, "busy"))),
        &[Violation::Unsettled {
            id: id(),
            amount: 300,
        }],
    );
    let history = History {
        exchanges: vec![asked(100, nothing())],
        ledger: vec![charge("ch_1")],
        rows: vec![row("in_progress", 0, "")],
        ..History::default()
    };
    assert_eq!(
        check(&history),
        [
            Violation::Untold {
                id: id(),
                charge: "ch_1".to_owned()
            },
            Violation::Unsettled {
                id: id(),
                amount: 100
            },
            Violation::Stuck { id: id() },
        ]
    );
}

#[test]
fn a_mismatch_needs_another_amount() {
    let refused = [Violation::Refused {
        id: id(),
        amount: 100,
    }];
    broken(
        |history| history.exchanges[1].heard = heard(422, "mismatch"),
        &refused,
    );
    // One that is wrong on purpose comes too late to be an excuse.
    broken(
        |history| {
            history.exchanges[1].heard = heard(422, "mismatch");
            history.exchanges.push(asked(300, heard(422, "mismatch")));
            history.exchanges[4].wish.wrong = true;
        },
        &refused,
    );
}

#[test]
fn after_the_final_answer_there_is_only_its_replay() {
    let once = |status, replayed| Heard::Answer {
        status,
        replayed,
        body: br#"{"charge_id":"ch_1","amount":100}"#.into(),
    };
    let late = |heard: Heard| {
        let mut history = sound();
        history.exchanges.push(at(2, 3, asked(100, heard)));
        history
    };
    for fine in [once(201, true), heard(503, "away"), nothing()] {
        assert_eq!(check(&late(fine)), []);
    }
    for wrong in [once(201, false), heard(409, "busy"), heard(502, "unknown")] {
        let found = check(&late(wrong.clone()));
        assert!(
            matches!(found.as_slice(), [Violation::AskedAgain { .. }]),
            "{wrong:?}: {found:?}"
        );
        // Started before anybody had heard it.
        let mut early = late(wrong);
        for exchange in &mut early.exchanges[2..4] {
            exchange.ended = *T0 + Duration::from_secs(3);
        }
        assert_eq!(check(&early), []);
    }
    // Another amount is refused, and only that.
    let mut history = late(heard(422, "mismatch"));
    history.exchanges[4].wish.wrong = true;
    assert_eq!(check(&history), []);
    history.exchanges[4].heard = heard(409, "busy");
    assert_eq!(check(&history).len(), 1);
}

/// A service that asks the table once for equal requests tells a late one what it has just heard for an early one.
#[test]
fn a_late_request_may_share_an_early_ones_question() {
    let mut history = sound();
    history.exchanges.push(at(0, 3, asked(100, heard(409, "busy"))));
    history.exchanges.push(at(2, 3, asked(100, heard(409, "busy"))));
    history.exchanges[2].ended = *T0 + Duration::from_secs(1);
    history.exchanges[3] = at(2, 3, asked(100, paid()));
    assert_eq!(check(&history).len(), 1);
    history.shares_flights = Some(0);
    assert_eq!(check(&history), []);
    // The early one was asked elsewhere.
    history.exchanges[4].service = 1;
    history.exchanges[0].service = 1;
    assert_eq!(check(&history).len(), 1);
}

#[test]
fn calls() {
    let mut history = sound();
    history.calls = vec![call(0, Some(2)), call(1, Some(3))];
    assert_eq!(check(&history), [Violation::CallsOverlap { id: id() }]);
    // Whoever stood still may find that another one has gone on.
    history.calm = false;
    assert_eq!(check(&history), []);
    let more = Violation::TooManyCalls {
        id: id(),
        calls: 3,
        attempts: 2,
    };
    broken(|history| history.calls.push(call(2, Some(3))), &[more]);
    // Given up and begun again: the row counts from one.
    broken(
        |history| {
            history.calls.push(call(2, Some(3)));
            history.released.insert(id());
        },
        &[],
    );
}

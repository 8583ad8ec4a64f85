//! The checker on histories made by hand: a sound one, and one for each broken promise.

use std::time::Duration;

use super::checker::{Violation, check};
use super::history::{Charge, Exchange, Heard, History, Id, Row, Wish};

fn id() -> Id {
    Id::new("shop-1", "order-1")
}

fn heard(status: u16, body: &str) -> Heard {
    Heard::Answer {
        status,
        replayed: false,
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
        took: Duration::ZERO,
    }
}

fn nothing() -> Heard {
    Heard::Nothing("timed out".to_owned())
}

fn charge(charge: &str) -> Charge {
    Charge {
        id: charge.to_owned(),
        order_id: "shop-1/order-1".to_owned(),
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
    }
}

/// A declined card.
fn declined() -> History {
    let mut history = History {
        exchanges: vec![asked(100, heard(502, "unknown")), asked(100, heard(402, "no"))],
        ledger: vec![],
        rows: vec![row("done", 402, "no")],
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
                order_id: "shop-2/order-1".to_owned(),
                ..charge("ch_2")
            });
        },
        &[Violation::Foreign {
            order: "shop-2/order-1".to_owned(),
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

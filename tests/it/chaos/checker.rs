//! Judges a history: what was promised to clients, against the provider's ledger and the table.
//!
//! The checker knows nothing of how the service works. It sees what clients sent and heard, the money that moved,
//! and the rows in the end.

use std::collections::{BTreeMap, BTreeSet};

use super::after;
use super::history::{Call, Charge, Exchange, Heard, History, Id, Row};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Violation {
    /// Money moved more than once for one key: what all this is about.
    ChargedTwice { id: Id, charges: Vec<String> },
    /// A client was told that it paid, and no money moved.
    NotCharged { id: Id },
    /// A client was told of a charge that is not this key's.
    OtherCharge { id: Id, told: String },
    /// Money moved, and no client was ever told.
    Untold { id: Id, charge: String },
    /// An amount was charged that nobody asked for, or that was asked for under a used key.
    WrongAmount { id: Id, amount: u64 },
    /// A card was declined towards a client, and money moved.
    DeclinedYetCharged { id: Id, charge: String },
    /// Two final answers for one key differ.
    AnswersDiffer { id: Id, first: String, other: String },
    /// A final answer was given to somebody who had asked for another amount.
    OthersAnswer { id: Id, amount: u64 },
    /// A final answer was given, and the table does not hold it.
    AnswerLost { id: Id, stored: String },
    /// No final answer was ever given for one of these amounts, nor a refusal, however often it was asked for.
    Unsettled { id: Id, amount: u64 },
    /// The row is in progress in the end.
    Stuck { id: Id },
    /// Money moved for an order that nobody had placed.
    Foreign { order: String },
    /// A key that was only ever used for this amount was refused it, as if it were another request.
    Refused { id: Id, amount: u64 },
    /// Asked for after somebody had heard the final answer, and told anything but that answer, as a stored one.
    AskedAgain { id: Id, answer: String },
    /// Two holders of one key told the provider to charge at the same time.
    CallsOverlap { id: Id },
    /// The provider was told to charge more often than the key was acquired.
    TooManyCalls { id: Id, calls: usize, attempts: i32 },
    /// An answer that the protocol does not have.
    Unexpected { id: Id, answer: String },
}

/// What the protocol may answer: done, declined, busy, mismatch, outcome unknown, not available.
const EXPECTED: [u16; 6] = [201, 402, 409, 422, 502, 503];

/// How many keys were charged twice.
pub(super) fn doubles(violations: &[Violation]) -> usize {
    let double = |violation: &&Violation| matches!(violation, Violation::ChargedTwice { .. });
    violations.iter().filter(double).count()
}

/// All broken promises, each once.
pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut of_key: BTreeMap<&Id, Facts<'_>> = BTreeMap::new();
    for exchange in &history.exchanges {
        let facts = of_key.entry(&exchange.wish.id).or_default();
        facts.exchanges.push(exchange);
    }
    for row in &history.rows {
        of_key.entry(&row.id).or_default().row = Some(row);
    }
    let orders: BTreeMap<String, &Id> = of_key.keys().map(|id| (id.order(), *id)).collect();
    let mut found = BTreeSet::new();
    for charge in &history.ledger {
        match orders.get(&charge.order_id).and_then(|id| of_key.get_mut(*id)) {
            Some(facts) => facts.charges.push(charge),
            None => {
                found.insert(Violation::Foreign {
                    order: charge.order_id.clone(),
                });
            }
        }
    }
    for call in &history.calls {
        if let Some(facts) = orders.get(&call.order_id).and_then(|id| of_key.get_mut(*id)) {
            facts.calls.push(call);
        }
    }
    for (id, facts) in &of_key {
        facts.money(id, &mut found);
        facts.answers(id, &mut found);
        facts.refusals(id, &mut found);
        facts.calls(id, history, &mut found);
        after::check(id, &facts.exchanges, history.shares_flights, &mut found);
        facts.end(id, &mut found);
    }
    found.into_iter().collect()
}

/// What is known of one key.
#[derive(Default)]
struct Facts<'a> {
    exchanges: Vec<&'a Exchange>,
    charges: Vec<&'a Charge>,
    calls: Vec<&'a Call>,
    row: Option<&'a Row>,
}

impl Facts<'_> {
    fn heard(&self, status: u16) -> impl Iterator<Item = &&Exchange> {
        self.exchanges
            .iter()
            .filter(move |exchange| exchange.heard.status() == Some(status))
    }

    /// What moved, against what was asked for and told.
    fn money(&self, id: &Id, found: &mut BTreeSet<Violation>) {
        if self.charges.len() > 1 {
            found.insert(Violation::ChargedTwice {
                id: id.clone(),
                charges: self.charges.iter().map(|charge| charge.id.clone()).collect(),
            });
        }
        let told = self.heard(201).next().is_some();
        if told && self.charges.is_empty() {
            found.insert(Violation::NotCharged { id: id.clone() });
        }
        for charge in &self.charges {
            if !told {
                found.insert(Violation::Untold {
                    id: id.clone(),
                    charge: charge.id.clone(),
                });
            }
            if self.heard(402).next().is_some() {
                found.insert(Violation::DeclinedYetCharged {
                    id: id.clone(),
                    charge: charge.id.clone(),
                });
            }
            let wished = |exchange: &&Exchange| {
                !exchange.wish.wrong && !exchange.wish.declined && exchange.wish.amount == charge.amount
            };
            if !self.exchanges.iter().any(wished) {
                found.insert(Violation::WrongAmount {
                    id: id.clone(),
                    amount: charge.amount,
                });
            }
        }
    }

    /// What clients heard, against each other and against what moved.
    fn answers(&self, id: &Id, found: &mut BTreeSet<Violation>) {
        let mut first: Option<&Heard> = None;
        for exchange in &self.exchanges {
            let Heard::Answer { status, body, .. } = &exchange.heard else {
                continue;
            };
            if !EXPECTED.contains(status) {
                found.insert(Violation::Unexpected {
                    id: id.clone(),
                    answer: shown(*status, body),
                });
            }
            if !exchange.heard.is_final() {
                continue;
            }
            match first {
                None => first = Some(&exchange.heard),
                Some(Heard::Answer {
                    status: one,
                    body: bytes,
                    ..
                }) if (one, bytes) != (status, body) => {
                    found.insert(Violation::AnswersDiffer {
                        id: id.clone(),
                        first: shown(*one, bytes),
                        other: shown(*status, body),
                    });
                }
                Some(_) => {}
            }
            self.answer(id, exchange, *status, body, found);
        }
    }

    /// One final answer.
    fn answer(
        &self,
        id: &Id,
        exchange: &Exchange,
        status: u16,
        body: &[u8],
        found: &mut BTreeSet<Violation>,
    ) {
        let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let others = exchange.wish.wrong
            || (status == 201 && exchange.wish.declined)
            || (status == 201 && json["amount"] != exchange.wish.amount);
        if others {
            found.insert(Violation::OthersAnswer {
                id: id.clone(),
                amount: exchange.wish.amount,
            });
        }
        if status == 201 && !self.charges.is_empty() {
            let told = json["charge_id"].as_str().unwrap_or_default();
            if !self.charges.iter().any(|charge| charge.id == told) {
                found.insert(Violation::OtherCharge {
                    id: id.clone(),
                    told: told.to_owned(),
                });
            }
        }
        let kept = self.row.is_some_and(|row| {
            row.status != "in_progress"
                && row.status_code == Some(i32::from(status))
                && row.body.as_deref() == Some(body)
        });
        if !kept {
            found.insert(Violation::AnswerLost {
                id: id.clone(),
                stored: self.row.map_or_else(
                    || "no row".to_owned(),
                    |row| {
                        let code = row.status_code.unwrap_or_default();
                        let body = row.body.as_deref().unwrap_or_default();
                        format!("{} {code} {}", row.status, String::from_utf8_lossy(body))
                    },
                ),
            });
        }
    }

    /// A mismatch needs somebody else's request. One that was wrong on purpose came after the key had its answer.
    fn refusals(&self, id: &Id, found: &mut BTreeSet<Violation>) {
        for exchange in self.heard(422).filter(|exchange| !exchange.wish.wrong) {
            let amount = exchange.wish.amount;
            let raced = |other: &&Exchange| !other.wish.wrong && other.wish.amount != amount;
            if !self.exchanges.iter().any(raced) {
                found.insert(Violation::Refused {
                    id: id.clone(),
                    amount,
                });
            }
        }
    }

    /// What the provider was told. Each acquisition tells it once at most, and counts in the row, unless the row was
    /// released in between. (Abandoned is a key only before its work begins.) Where leases last, one holder is told
    /// before the next one asks; only where the first hung up does the provider not know when it gave up waiting.
    fn calls(&self, id: &Id, history: &History, found: &mut BTreeSet<Violation>) {
        let attempts = self.row.map_or(0, |row| row.attempt);
        let counted = !history.released.contains(id) && self.row.is_some();
        if counted && i64::from(attempts) < i64::try_from(self.calls.len()).unwrap_or(i64::MAX) {
            found.insert(Violation::TooManyCalls {
                id: id.clone(),
                calls: self.calls.len(),
                attempts,
            });
        }
        let overlap = self.calls.iter().enumerate().any(|(place, first)| {
            let ended = first.ended_us;
            ended.is_some_and(|ended| self.calls[place + 1..].iter().any(|next| next.started_us < ended))
        });
        if history.calm && overlap {
            found.insert(Violation::CallsOverlap { id: id.clone() });
        }
    }

    /// How it ended.
    fn end(&self, id: &Id, found: &mut BTreeSet<Violation>) {
        if self.row.is_some_and(|row| row.status == "in_progress") {
            found.insert(Violation::Stuck { id: id.clone() });
        }
        let mut settled: BTreeMap<u64, bool> = BTreeMap::new();
        for exchange in self.exchanges.iter().filter(|exchange| !exchange.wish.wrong) {
            *settled.entry(exchange.wish.amount).or_default() |= exchange.heard.is_definite();
        }
        let any = self.exchanges.iter().any(|exchange| exchange.heard.is_final());
        for (amount, settled) in settled {
            if !settled || !any {
                found.insert(Violation::Unsettled {
                    id: id.clone(),
                    amount,
                });
            }
        }
    }
}

pub(super) fn shown(status: u16, body: &[u8]) -> String {
    format!("{status} {}", String::from_utf8_lossy(body))
}

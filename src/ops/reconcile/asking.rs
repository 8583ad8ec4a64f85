//! Asking about many rows: a lane for each provider, with its own pace, that closes when the provider is dead.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Ready;
use super::plan::PlannedRow;
use super::proposal::{Obstacle, Proposal};
use crate::key::KeyId;
use crate::ops::ask::{Chosen, Providers};
use crate::record::Record;
use crate::stop::Stop;

/// After so many questions in a row that got no answer at all, the rest of a lane is not asked in this run.
const DEAD_AFTER: u32 = 5;

/// How the questions are put.
pub(super) struct Questions<'a> {
    pub(super) providers: &'a Providers,
    pub(super) named: Option<&'a str>,
    pub(super) concurrency: usize,
    pub(super) rps: Option<f64>,
    pub(super) stop: &'a Stop,
}

/// What has happened in one provider's lane.
struct Lane {
    interval: Duration,
    /// When the next question may be put.
    next: Mutex<Instant>,
    unanswered: AtomicU32,
}

/// A row whose provider is known.
struct Question {
    row: Ready,
    whom: Chosen,
}

type Answer = (Proposal, Option<PlannedRow>);

impl<'a> Questions<'a> {
    /// The proposals in the order in which the answers come.
    pub(super) fn ask_all(self, rows: Vec<Ready>) -> impl Stream<Item = Answer> + 'a {
        let (mut lanes, mut settled) = (BTreeMap::<String, Vec<Question>>::new(), Vec::new());
        for row in rows {
            match self.whom(&row) {
                Ok(whom) => {
                    let name = whom.provider.name().to_owned();
                    lanes.entry(name).or_default().push(Question { row, whom });
                }
                Err(obstacle) => settled.push((Proposal::nothing(row.seen, obstacle), row.planned)),
            }
        }
        for lane in lanes.values_mut() {
            settled.extend(without_shared_orders(lane));
        }
        let questions = Arc::new(self);
        let lanes = lanes.into_values().map(|mut lane| {
            // A few rows that a provider cannot answer must not stand before the same others in every run.
            fastrand::shuffle(&mut lane);
            Arc::clone(&questions).lane(lane)
        });
        stream::select_all(std::iter::once(stream::iter(settled).boxed()).chain(lanes))
    }

    /// Whom to ask; or why nobody is asked.
    fn whom(&self, row: &Ready) -> Result<Chosen, Obstacle> {
        if let Some(obstacle) = Proposal::without_asking(&row.seen) {
            return Err(obstacle);
        }
        // A plan is about what that provider said; another one would be another plan.
        let planned = row
            .planned
            .as_ref()
            .and_then(|planned| planned.provider.as_deref());
        match self.providers.for_row(&row.seen, planned.or(self.named)) {
            Ok(Some(whom)) => Ok(whom),
            Ok(None) => Err(Obstacle::NoProvider),
            Err(error) => Err(Obstacle::Settings(error.to_string())),
        }
    }

    fn lane(self: Arc<Self>, rows: Vec<Question>) -> BoxStream<'a, Answer> {
        let lane = Arc::new(Lane::new(self.rps));
        let concurrency = self.concurrency;
        stream::iter(rows)
            .map(move |Question { row, whom }| {
                let (lane, questions) = (Arc::clone(&lane), Arc::clone(&self));
                async move { (questions.ask(&lane, row.seen, &whom).await, row.planned) }
            })
            .buffer_unordered(concurrency)
            .boxed()
    }

    async fn ask(&self, lane: &Lane, seen: Record, whom: &Chosen) -> Proposal {
        tokio::select! {
            () = lane.turn() => {}
            () = self.stop.soft() => {}
        }
        if self.stop.is_soft() {
            return Proposal::nothing(seen, Obstacle::NotAsked("asked to stop".to_owned()));
        }
        if lane.unanswered.load(Ordering::Relaxed) >= DEAD_AFTER {
            let why = format!(
                "{} did not answer {DEAD_AFTER} times in a row",
                whom.provider.name()
            );
            return Proposal::nothing(seen, Obstacle::NotAsked(why));
        }
        let status = whom.about(&seen).await;
        if status.answered {
            lane.unanswered.store(0, Ordering::Relaxed);
        } else {
            lane.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        Proposal::of(seen, status, whom)
    }
}

/// Takes those out that share an order id: the provider's answer would fit each of them, and be right for one.
fn without_shared_orders(lane: &mut Vec<Question>) -> Vec<Answer> {
    let mut by_order: HashMap<String, Vec<KeyId>> = HashMap::new();
    for question in &*lane {
        let seen = &question.row.seen;
        let ids = by_order.entry(seen.order_id().to_owned()).or_default();
        ids.push(seen.id.clone());
    }
    let shares = |question: &mut Question| by_order[question.row.seen.order_id()].len() > 1;
    let answer = |Question { row, .. }: Question| {
        let others = &by_order[row.seen.order_id()];
        let other = others.iter().find(|id| **id != row.seen.id);
        let obstacle = Obstacle::SameOrder(other.unwrap_or(&row.seen.id).clone());
        (Proposal::nothing(row.seen, obstacle), row.planned)
    };
    lane.extract_if(.., shares).map(answer).collect()
}

impl Lane {
    fn new(rps: Option<f64>) -> Self {
        Self {
            interval: rps.map_or(Duration::ZERO, |rps| Duration::from_secs_f64(rps.recip())),
            next: Mutex::new(Instant::now()),
            unanswered: AtomicU32::new(0),
        }
    }

    /// Waits until a question may be put.
    async fn turn(&self) {
        if self.interval.is_zero() {
            return;
        }
        let at = {
            let mut next = self.next.lock().await;
            let at = (*next).max(Instant::now());
            *next = at + self.interval;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lane_keeps_its_pace() {
        let lane = Lane::new(Some(10.0));
        let start = Instant::now();
        for _ in 0..11 {
            lane.turn().await;
        }
        let took = start.elapsed();
        assert!(
            (Duration::from_secs(1)..Duration::from_millis(1020)).contains(&took),
            "{took:?}"
        );
    }
}

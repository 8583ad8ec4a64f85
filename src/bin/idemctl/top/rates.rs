//! Rates between two looks, by the database's clock and the server's own counters.

use std::collections::VecDeque;

use idemctl::ops::top::Counters;

/// How many looks are kept: more than any terminal is wide.
const KEPT: usize = 500;

/// What happened in a second, between one look and the next; and how many keys were expired then.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) inserted: Option<f64>,
    pub(crate) updated: Option<f64>,
    pub(crate) deleted: Option<f64>,
    pub(crate) expired: Option<u64>,
}

/// The latest samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    last: Option<Counters>,
    pub(crate) samples: VecDeque<Sample>,
}

impl Rates {
    /// Adds a look. The first one has no rates, and neither has one after the counters were reset.
    pub(crate) fn add(&mut self, counters: Counters, expired: Option<u64>) {
        let last = self.last.replace(counters);
        let seconds = last
            .and_then(|last| counters.now.seconds_since(last.now))
            .filter(|seconds| *seconds > 0.0);
        let rate = |count: fn(&Counters) -> i64| {
            let more = count(&counters).checked_sub(count(&last?))?;
            let more = u32::try_from(more).ok()?;
            Some(f64::from(more) / seconds?)
        };
        self.samples.push_back(Sample {
            inserted: rate(|counters| counters.inserted),
            updated: rate(|counters| counters.updated),
            deleted: rate(|counters| counters.deleted),
            expired,
        });
        if self.samples.len() > KEPT {
            self.samples.pop_front();
        }
    }
}

//! The walk over the creation times, batch by batch, and how it adapts to time limits and locks.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Progress, Report, Request, Stopped};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::stop::Stop;
use crate::store::Store;
use crate::store::event::NewEvent;
use crate::store::purge::{Pair, Slice, Ttl};
use crate::time::Timestamp;

/// The smallest batch: a slice of this many rows that stays locked is stepped over.
const SMALLEST_BATCH: u32 = 16;

/// How often a batch is tried again after a serialization failure or a deadlock before it counts as locked.
const RETRIES: u32 = 5;

/// How often in a row the smallest batch may meet the statement's time limit before the purge gives up:
/// something other than the batch's size is then the matter.
const MAX_TIMEOUTS: u32 = 5;

/// What ends a purge between two batches.
pub(super) struct Limits<'a> {
    pub(super) stop: &'a Stop,
    pub(super) deadline: Option<Instant>,
}

impl Limits<'_> {
    /// Why to start no further batch.
    pub(super) fn reached(&self) -> Option<Stopped> {
        if self.stop.is_soft() {
            return Some(Stopped::Interrupted);
        }
        let over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        over.then_some(Stopped::MaxDuration)
    }

    /// Rests, but not beyond the deadline nor after being asked to stop.
    pub(super) async fn pause(&self, pause: Duration) {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let pause = left.map_or(pause, |left| pause.min(left));
        if pause.is_zero() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.stop.soft() => {}
        }
    }
}

/// Whether the database's limit for a statement (57014) or a lock (55P03) ended it.
pub(super) fn is_time_limit(error: &Error) -> bool {
    matches!(error.sqlstate(), Some("57014" | "55P03"))
}

/// Where the walk stands.
#[derive(Debug, Clone)]
enum Place {
    /// Before the rows created at this time.
    At(Timestamp),
    /// Among the rows of one creation time that are more than a batch.
    Pile { at: Timestamp, after: Pair },
    /// At the cut-off.
    End,
}

/// How many rows a batch takes: halved on trouble, doubled again after a quiet stretch.
struct Pace {
    most: u32,
    now: u32,
    /// Not halved below this. Doubled after each slice that was stepped over, so that a long locked stretch is
    /// crossed in few steps.
    floor: u32,
    /// Batches without trouble still to come before the size is doubled.
    calm: u32,
    timeouts: u32,
}

impl Pace {
    fn new(most: u32) -> Self {
        Self {
            most,
            now: most,
            floor: most.min(SMALLEST_BATCH),
            calm: 0,
            timeouts: 0,
        }
    }

    fn success(&mut self) {
        self.floor = self.most.min(SMALLEST_BATCH);
        self.timeouts = 0;
        self.calm = self.calm.saturating_sub(1);
        if self.calm == 0 {
            self.now = self.now.saturating_mul(2).min(self.most);
        }
    }

    /// Takes a smaller batch; `false` when it is the smallest already.
    fn shrink(&mut self, calm: u32) -> bool {
        self.calm = calm;
        if self.now <= self.floor {
            return false;
        }
        self.now = (self.now / 2).max(self.floor);
        true
    }

    fn stepped_over(&mut self) {
        self.floor = self.floor.saturating_mul(2).min(self.most);
        self.now = self.floor;
    }
}

struct Walk<'a, P> {
    conn: &'a mut Connection,
    store: &'a Store,
    request: &'a Request,
    progress: &'a mut P,
    report: &'a mut Report,
    ttl: Ttl,
    cutoff: Timestamp,
    place: Place,
    /// Creation time of the first rows that were stepped over.
    first_skipped: Option<Timestamp>,
    pace: Pace,
}

/// Purges the rows; what was done, and why it ended, goes into the report as it happens. Returns the creation
/// time before which nothing is left that was due.
pub(super) async fn rows<P: FnMut(&Progress) + Send>(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    progress: &mut P,
    limits: &Limits<'_>,
    report: &mut Report,
) -> Result<Timestamp> {
    let ttl = request.ttl();
    // Fixed once: rows that become due during the walk are the next purge's, so the walk has an end.
    let cutoff = store.purge_cutoff(conn, ttl).await?;
    let mut walk = Walk {
        conn,
        store,
        request,
        progress,
        report,
        ttl,
        cutoff,
        place: Place::At(Timestamp::NEG_INFINITY),
        first_skipped: None,
        pace: Pace::new(request.batch_size),
    };
    loop {
        let stopped = if walk.remaining() == 0 {
            Some(Stopped::MaxRows)
        } else {
            limits.reached()
        };
        if let Some(stopped) = stopped {
            walk.report.stopped = stopped;
            return Ok(walk.left_from());
        }
        let Some((slice, next)) = walk.look().await? else {
            walk.report.stopped = Stopped::Done;
            return Ok(walk.left_from());
        };
        walk.work(&slice, next).await?;
        limits.pause(request.pause).await;
    }
}

impl<P: FnMut(&Progress) + Send> Walk<'_, P> {
    /// Rows that may still be deleted.
    fn remaining(&self) -> u64 {
        self.request
            .max_rows
            .map_or(u64::MAX, |max| max.saturating_sub(self.report.deleted))
    }

    /// The place, or the first that was stepped over on the way.
    fn left_from(&self) -> Timestamp {
        self.first_skipped.unwrap_or(match self.place {
            Place::At(at) | Place::Pile { at, .. } => at,
            Place::End => self.cutoff,
        })
    }

    /// Finds the next slice, of no more rows than a batch, and the place behind it; `None` at the end.
    async fn look(&mut self) -> Result<Option<(Slice, Place)>> {
        loop {
            match self.try_look().await {
                // A smaller look reads fewer index entries.
                Err(error) if is_time_limit(&error) && self.pace.shrink(16) => {
                    tracing::debug!(%error, batch_size = self.pace.now, "looking at fewer rows at a time");
                }
                other => return other,
            }
        }
    }

    async fn try_look(&mut self) -> Result<Option<(Slice, Place)>> {
        let rows = u32::try_from(self.remaining())
            .unwrap_or(u32::MAX)
            .min(self.pace.now);
        loop {
            match self.place.clone() {
                Place::End => return Ok(None),
                Place::At(from) => {
                    let boundary = self
                        .store
                        .purge_boundary(&*self.conn, from, self.cutoff, rows)
                        .await?;
                    match boundary {
                        None => {
                            return Ok(Some((
                                Slice::Range {
                                    from,
                                    to: self.cutoff,
                                },
                                Place::End,
                            )));
                        }
                        Some(to) if to > from => {
                            return Ok(Some((Slice::Range { from, to }, Place::At(to))));
                        }
                        // More rows of one time than a batch: they are cut by their keys. (Names are never
                        // empty, so every key comes after the empty one.)
                        Some(_) => {
                            self.place = Place::Pile {
                                at: from,
                                after: Pair::default(),
                            }
                        }
                    }
                }
                Place::Pile { at, after } => {
                    match self.store.purge_pile_end(&*self.conn, at, &after, rows).await? {
                        None => self.place = Place::At(at.successor()),
                        Some(upto) => {
                            let next = Place::Pile {
                                at,
                                after: upto.clone(),
                            };
                            return Ok(Some((Slice::Pile { at, after, upto }, next)));
                        }
                    }
                }
            }
        }
    }

    /// Works on one slice; on trouble the place stays and the next look takes less, or steps over it.
    async fn work(&mut self, slice: &Slice, next: Place) -> Result<()> {
        match self.batch(slice).await {
            // Rows with an old creation time were committed since the look: look again.
            Ok(None) => return Ok(()),
            Ok(Some(deleted)) => {
                self.place = next;
                self.pace.success();
                self.report.deleted += deleted;
                self.report.batches += u64::from(deleted > 0);
            }
            Err(error) if is_time_limit(&error) || error.is_retryable() => {
                let timeout = error.sqlstate() == Some("57014");
                if self.pace.shrink(if timeout { 16 } else { 3 }) {
                    tracing::debug!(%error, batch_size = self.pace.now, "deleting fewer rows at a time");
                    return Ok(());
                }
                self.pace.timeouts += u32::from(timeout);
                if self.pace.timeouts > MAX_TIMEOUTS {
                    return Err(error);
                }
                // The count takes no row locks, so it is answered where the delete was not.
                let skipped = self.store.purge_count(&*self.conn, self.ttl, slice).await?;
                tracing::warn!(%error, rows = skipped, "stepping over rows that stay locked");
                self.report.skipped += skipped;
                let (Slice::Range { from: at, .. } | Slice::Pile { at, .. }) = slice;
                self.first_skipped.get_or_insert(*at);
                self.place = next;
                self.pace.stepped_over();
            }
            Err(error) => return Err(error),
        }
        (self.progress)(&Progress {
            deleted: self.report.deleted,
            skipped: self.report.skipped,
            batches: self.report.batches,
            batch_size: self.pace.now,
        });
        Ok(())
    }

    /// One batch; tried again a few times where another transaction got in the way.
    async fn batch(&mut self, slice: &Slice) -> Result<Option<u64>> {
        if self.request.dry_run {
            return self
                .store
                .purge_count(&*self.conn, self.ttl, slice)
                .await
                .map(Some);
        }
        let mut tries = 0;
        loop {
            match self.try_batch(slice).await {
                Err(error) if error.is_retryable() && tries < RETRIES => {
                    tries += 1;
                    let wait = fastrand::u64(1..=20 << tries);
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
                other => return other,
            }
        }
    }

    /// Delete, event, commit. `None`: the slice had grown over what may be deleted, and nothing was.
    async fn try_batch(&mut self, slice: &Slice) -> Result<Option<u64>> {
        let remaining = self.remaining();
        let tx = self.conn.begin().await?;
        self.store.short_lock_timeout(&tx).await?;
        let deleted = self.store.purge_slice(&tx, self.ttl, slice).await?;
        if deleted == 0 {
            return Ok(Some(0));
        }
        if deleted > remaining {
            return Ok(None);
        }
        let details = json!({
            "deleted": deleted,
            "ttl_done_seconds": self.request.retention.done.as_secs_f64(),
            "ttl_failed_seconds": self.request.retention.failed.as_secs_f64(),
        });
        let event = NewEvent {
            action: "purge",
            details: Some(details),
            ..NewEvent::default()
        };
        self.store.append_event(&tx, &self.request.actor, &event).await?;
        self.report.unknown = deleted;
        let result = tx.commit().await;
        // An answer, also a refusal, is knowledge; silence and a broken connection are not.
        if !result.as_ref().is_err_and(Error::needs_reconnect) {
            self.report.unknown = 0;
        }
        result.map(|()| Some(deleted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_halves_the_batch_and_quiet_brings_it_back() {
        let mut pace = Pace::new(5_000);
        while pace.shrink(3) {}
        assert_eq!(pace.now, SMALLEST_BATCH);
        pace.stepped_over();
        assert_eq!(
            (pace.now, pace.shrink(3)),
            (32, false),
            "a locked stretch is crossed in growing steps"
        );
        for _ in 0..20 {
            pace.success();
        }
        assert_eq!((pace.now, pace.floor), (5_000, SMALLEST_BATCH));
    }

    #[test]
    fn a_small_batch_is_its_own_smallest() {
        let mut pace = Pace::new(3);
        assert!(!pace.shrink(3));
        pace.stepped_over();
        assert_eq!(pace.now, 3);
    }
}

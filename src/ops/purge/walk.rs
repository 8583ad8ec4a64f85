//! The walk over the creation times, batch by batch, and how it adapts to time limits and locks.

use std::time::{Duration, Instant};

use serde_json::json;

use super::pace::Pace;
use super::{Progress, Report, Request, Stopped};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::stop::Stop;
use crate::store::Store;
use crate::store::event::NewEvent;
use crate::store::purge::{Pair, Slice, Ttl};
use crate::time::Timestamp;

/// How often a batch is tried again after a serialization failure or a deadlock before it counts as locked.
const RETRIES: u32 = 5;

/// How often in a row the smallest batch may meet the statement's time limit before the purge gives up:
/// something other than the batch's size is then the matter.
const MAX_TIMEOUTS: u32 = 5;

/// How many rows in a row may refuse to be deleted, each by itself, before the purge gives up: something about the
/// table is then the matter.
const MAX_REFUSED: u32 = 20;

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

/// Whether a row refuses to be deleted: a constraint of another table (class 23), a trigger that raises (P0) and
/// the like. Other rows may well be deleted.
fn is_refusal(error: &Error) -> bool {
    error.sqlstate().is_some_and(|code| {
        ["22", "23", "27", "44", "P0"]
            .iter()
            .any(|class| code.starts_with(class))
    })
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
    /// Rows that refused to be deleted since the last one that did not.
    refused: u32,
    /// Whether the last batch left everything that was due in its slice.
    swallowed: bool,
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
        refused: 0,
        swallowed: false,
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
                self.swallowed = false;
                if deleted > 0 {
                    self.refused = 0;
                }
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
                // Locks end sooner than the statement: its own limit says that the deleting takes too long.
                self.report.refused += if timeout { skipped } else { 0 };
                let (Slice::Range { from: at, .. } | Slice::Pile { at, .. }) = slice;
                self.first_skipped.get_or_insert(*at);
                self.place = next;
                self.pace.stepped_over();
            }
            Err(error) if is_refusal(&error) => {
                if self.pace.shrink_to(1, 1) {
                    tracing::debug!(%error, batch_size = self.pace.now, "looking for the row that refuses");
                    return Ok(());
                }
                self.refused += 1;
                if self.refused > MAX_REFUSED {
                    return Err(error);
                }
                let skipped = self.store.purge_count(&*self.conn, self.ttl, slice).await?;
                tracing::warn!(%error, rows = skipped, "stepping over a row that cannot be deleted");
                self.report.skipped += skipped;
                self.report.refused += skipped;
                let (Slice::Range { from: at, .. } | Slice::Pile { at, .. }) = slice;
                self.first_skipped.get_or_insert(*at);
                self.place = next;
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
        // A full batch has deleted all that it looked at; anything less must be because the rest is not due.
        if deleted < u64::from(self.pace.now) {
            let left = self.store.purge_count(&tx, self.ttl, slice).await?;
            if left > 0 && deleted == 0 {
                if self.swallowed {
                    return Err(swallowed(left));
                }
                // Perhaps they became due this moment: look again, once.
                self.swallowed = true;
                return Ok(None);
            }
            if left > 0 {
                tracing::warn!(
                    rows = left,
                    "the server left rows that were to be deleted: a rule, a trigger or row-level security"
                );
                self.report.skipped += left;
                self.report.refused += left;
                let (Slice::Range { from: at, .. } | Slice::Pile { at, .. }) = slice;
                self.first_skipped.get_or_insert(*at);
            }
        }
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

/// Success would be a lie: the server says that it did the DELETE, and the rows are still there.
fn swallowed(left: u64) -> Error {
    Error::Inconsistent {
        what: format!(
            "the server does not delete {left} rows that are due: a rule, a trigger or row-level security on \
             idempotency swallows the DELETE"
        ),
    }
}

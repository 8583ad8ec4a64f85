//! The ways to claim a key that services write by hand, statement by statement.

use tokio_postgres::types::Type;

use crate::error::Result;
use crate::key::KeyId;
use crate::store::scratch::Scrap;
use crate::store::session::{BEGIN, COMMIT, ROLLBACK};
use crate::store::{Answer, Executor, Statement, Tables};

const LOOK: Scrap = Scrap {
    name: "bench_look",
    text: "-- idemctl:bench_look
select status, status_code, response::text as response, fingerprint
  from {keys} where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT],
};

const LOOK_LOCKED: Scrap = Scrap {
    name: "bench_look_locked",
    text: "-- idemctl:bench_look_locked
select status, status_code, response::text as response, fingerprint
  from {keys} where client_id = $1 and key = $2 for update",
    types: &[Type::TEXT, Type::TEXT],
};

const STORE: Scrap = Scrap {
    name: "bench_store",
    text: "-- idemctl:bench_store
insert into {keys} (client_id, key, fingerprint, status, status_code, response)
values ($1, $2, $3, 'done', 201, $4::json)",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT],
};

const CLAIM: Scrap = Scrap {
    name: "bench_claim",
    text: "-- idemctl:bench_claim
insert into {keys} (client_id, key, fingerprint) values ($1, $2, $3)",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT],
};

const CLAIM_OR_NOTHING: Scrap = Scrap {
    name: "bench_claim_or_nothing",
    text: "-- idemctl:bench_claim_or_nothing
insert into {keys} (client_id, key, fingerprint) values ($1, $2, $3)
on conflict (client_id, key) do nothing
returning key",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT],
};

/// Locks the row even where the condition is false, so that every loser writes.
const UPSERT: Scrap = Scrap {
    name: "bench_upsert",
    text: "-- idemctl:bench_upsert
insert into {keys} as k (client_id, key, fingerprint) values ($1, $2, $3)
on conflict (client_id, key) do update
   set locked_until = now() + interval '30 seconds'
 where k.status = 'in_progress' and k.locked_until < now() and k.fingerprint = excluded.fingerprint
returning true",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT],
};

const COMPLETE: Scrap = Scrap {
    name: "bench_complete",
    text: "-- idemctl:bench_complete
update {keys} set status = 'done', status_code = 201, response = $3::json where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT],
};

/// Of a transaction, so that a pooler may stand between.
const LOCK: Scrap = Scrap {
    name: "bench_lock",
    text: "-- idemctl:bench_lock
select pg_advisory_xact_lock(hashtextextended($1 || chr(31) || $2, 0))",
    types: &[Type::TEXT, Type::TEXT],
};

/// What stands under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    Nothing,
    InProgress,
    Done,
}

/// The statements, ready to send.
#[derive(Debug)]
pub(crate) struct Rivals {
    look: Statement,
    look_locked: Statement,
    store: Statement,
    claim: Statement,
    claim_or_nothing: Statement,
    upsert: Statement,
    complete: Statement,
    lock: Statement,
    begin: Statement,
    commit: Statement,
    rollback: Statement,
}

impl Rivals {
    pub(crate) fn new(tables: &Tables) -> Self {
        let command = |name, text| {
            let types = &[];
            Scrap { name, text, types }.of(tables)
        };
        Self {
            look: LOOK.of(tables),
            look_locked: LOOK_LOCKED.of(tables),
            store: STORE.of(tables),
            claim: CLAIM.of(tables),
            claim_or_nothing: CLAIM_OR_NOTHING.of(tables),
            upsert: UPSERT.of(tables),
            complete: COMPLETE.of(tables),
            lock: LOCK.of(tables),
            begin: command("bench_begin", BEGIN),
            commit: command("bench_commit", COMMIT),
            rollback: command("bench_rollback", ROLLBACK),
        }
    }

    pub(crate) async fn look(&self, executor: &impl Executor, id: &KeyId) -> Result<Stored> {
        self.looked(executor, &self.look, id).await
    }

    /// Waits for whoever has locked the row.
    pub(crate) async fn look_locked(&self, executor: &impl Executor, id: &KeyId) -> Result<Stored> {
        self.looked(executor, &self.look_locked, id).await
    }

    async fn looked(&self, executor: &impl Executor, statement: &Statement, id: &KeyId) -> Result<Stored> {
        let answer = executor
            .run(statement, &[/* client_id */ &id.client_id(), /* key */ &id.key()])
            .await?;
        Ok(answer
            .rows
            .first()
            .map_or(Stored::Nothing, |row| match row.get::<_, &str>("status") {
                "in_progress" => Stored::InProgress,
                _ => Stored::Done,
            }))
    }

    /// Stores the result under a key that nobody has claimed.
    pub(crate) async fn store(
        &self,
        executor: &impl Executor,
        id: &KeyId,
        fingerprint: &str,
        body: &str,
    ) -> Result<()> {
        executor
            .run(
                &self.store,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* fingerprint */ &fingerprint,
                    /* response */ &body,
                ],
            )
            .await?;
        Ok(())
    }

    /// SQLSTATE 23505 for the loser, who waits for the end of the winner's transaction.
    pub(crate) async fn claim(&self, executor: &impl Executor, id: &KeyId, fingerprint: &str) -> Result<()> {
        self.claimed(executor, &self.claim, id, fingerprint).await?;
        Ok(())
    }

    /// Whether the row is ours.
    pub(crate) async fn claim_or_nothing(
        &self,
        executor: &impl Executor,
        id: &KeyId,
        fingerprint: &str,
    ) -> Result<bool> {
        let answer = self
            .claimed(executor, &self.claim_or_nothing, id, fingerprint)
            .await?;
        Ok(!answer.rows.is_empty())
    }

    /// Whether the row is ours, new or taken over.
    pub(crate) async fn upsert(
        &self,
        executor: &impl Executor,
        id: &KeyId,
        fingerprint: &str,
    ) -> Result<bool> {
        let answer = self.claimed(executor, &self.upsert, id, fingerprint).await?;
        Ok(!answer.rows.is_empty())
    }

    async fn claimed(
        &self,
        executor: &impl Executor,
        statement: &Statement,
        id: &KeyId,
        fingerprint: &str,
    ) -> Result<Answer> {
        executor
            .run(
                statement,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* fingerprint */ &fingerprint,
                ],
            )
            .await
    }

    /// Stores the result, whoever holds the key by now: nothing fences it.
    pub(crate) async fn complete(&self, executor: &impl Executor, id: &KeyId, body: &str) -> Result<()> {
        executor
            .run(
                &self.complete,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* response */ &body,
                ],
            )
            .await?;
        Ok(())
    }

    /// Waits for the key's lock, which the transaction's end gives back.
    pub(crate) async fn lock(&self, executor: &impl Executor, id: &KeyId) -> Result<()> {
        executor
            .run(
                &self.lock,
                &[/* client_id */ &id.client_id(), /* key */ &id.key()],
            )
            .await?;
        Ok(())
    }

    pub(crate) async fn begin(&self, executor: &impl Executor) -> Result<()> {
        executor.run(&self.begin, &[]).await?;
        Ok(())
    }

    pub(crate) async fn commit(&self, executor: &impl Executor) -> Result<()> {
        executor.run(&self.commit, &[]).await?;
        Ok(())
    }

    pub(crate) async fn rollback(&self, executor: &impl Executor) -> Result<()> {
        executor.run(&self.rollback, &[]).await?;
        Ok(())
    }
}

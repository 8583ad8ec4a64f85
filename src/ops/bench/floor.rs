//! The floors: what the work costs when nobody asks anything.

use std::time::Instant;

use super::env::{BODY, OPERATION};
use super::meter::{Meter, Outcome};
use super::request::Floor;
use super::turn::Ask;
use crate::error::Result;

pub(super) async fn ask(ask: Ask<'_>, floor: Floor, meter: &mut Meter) -> Result<Outcome> {
    let Ask { env, id, stop, .. } = ask;
    let line = env.pool.get(meter).await;
    let since = Instant::now();
    let done = match floor {
        Floor::Insert | Floor::InsertUpdate => {
            let new = (env.fingerprint.as_str(), env.lease, OPERATION);
            env.floors.insert(&*line, id, new).await
        }
        Floor::Select => env.floors.select(&*line, id).await,
        Floor::Update => env.floors.extend(&*line, id, env.lease).await,
    };
    meter.claimed(since);
    done?;
    drop(line);
    if floor == Floor::Select {
        return Ok(Outcome::Replayed);
    }
    env.work(meter, stop).await;
    if floor == Floor::InsertUpdate {
        let line = env.pool.get(meter).await;
        env.floors.update(&*line, id, BODY).await?;
    }
    Ok(Outcome::Worked)
}

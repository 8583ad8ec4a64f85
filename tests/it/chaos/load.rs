//! Load from a tool of other people's making: right whatever the load; how much it is, is only told.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::world::{Setup, World};
use crate::support::{Run, require_program, until};

async fn world() -> World {
    let setup = Setup {
        delay: 0,
        lease: 30_000,
        ..Setup::default()
    };
    World::start(setup).await
}

/// Lets `wrk` loose on one of the services; gives what it counted.
async fn wrk(world: &World, keys: &str) -> Value {
    let program = require_program("wrk", "wrk");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/chaos/load.lua");
    let address = world.addresses.lock().unwrap()[0];
    let url = format!("http://{address}/payments");
    let script = script.to_string_lossy();
    let args = [
        "-t2",
        "-c32",
        "-d3s",
        "--timeout",
        "20s",
        "-s",
        &script,
        &url,
        "--",
        keys,
    ];
    let said = Run::new(&program.to_string_lossy(), &args).run().await.ok();
    let counted = said.lines().find_map(|line| line.strip_prefix("counted "));
    let counted = counted.unwrap_or_else(|| panic!("nothing was counted:\n{said}"));
    println!("load, {keys} key(s), 32 connections, 3 s: {counted}");
    let counted: Value = serde_json::from_str(counted).expect("the script writes JSON");
    assert_eq!(
        (&counted["other"], &counted["broken"]),
        (&0.into(), &0.into()),
        "{said}"
    );
    assert!(counted["paid"].as_u64() > Some(0), "{said}");
    // wrk hangs up in the middle of its last requests, which are done all the same.
    until("the last payments are made", async || {
        world.in_progress().await == 0
    })
    .await;
    counted
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_under_load_is_charged_once() {
    let _alone = super::alone().await;
    let world = world().await;
    let counted = wrk(&world, "one").await;
    assert_eq!(
        (&counted["differing"], &counted["first_bodies"]),
        (&0.into(), &1.into())
    );
    let (ledger, rows) = (world.ledger().await, world.rows().await);
    assert_eq!((ledger.len(), rows.len()), (1, 1));
    assert_eq!(rows[0].attempt, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_under_load_are_charged_once_each() {
    let _alone = super::alone().await;
    let world = world().await;
    let counted = wrk(&world, "many").await;
    let (ledger, rows) = (world.ledger().await, world.rows().await);
    let orders: BTreeSet<_> = ledger.iter().map(|charge| charge.order_id.clone()).collect();
    let keys: BTreeSet<_> = rows.iter().map(|row| row.id.order()).collect();
    assert_eq!(orders.len(), ledger.len(), "one charge for each order");
    assert_eq!(orders, keys);
    assert!(rows.iter().all(|row| row.status_code == Some(201)), "{rows:?}");
    // Each key is sent twice, and the last ones may have been cut off.
    let answers = counted["paid"].as_u64().unwrap() + counted["busy"].as_u64().unwrap();
    let keys = u64::try_from(keys.len()).unwrap();
    assert!(keys * 2 + 2 >= answers && keys > 0, "{keys} keys, {counted}");
}

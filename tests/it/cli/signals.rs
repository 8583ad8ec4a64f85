//! Ctrl-C and SIGTERM in the middle: the statement ends on the server too.

use nix::sys::signal::Signal;

use super::fixture::{calm, filled};
use crate::support::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_long_statement_is_stopped_on_the_server() {
    let _private = crate::support::privately("it makes roles");
    for (signal, pty) in [
        (Signal::SIGINT, false),
        (Signal::SIGTERM, false),
        (Signal::SIGINT, true),
    ] {
        let cli = filled().await;
        // Reading the table takes an hour.
        cli.execute(
            "alter table idempotency rename to hidden;
             create table idempotency (like hidden including all);
             insert into idempotency select * from hidden;
             create function slow() returns bool language plpgsql as $$ begin perform pg_sleep(3600); return true; end $$;
             alter table idempotency enable row level security;
             create policy slow on idempotency using (slow());
             do $$ begin execute 'create role slow_' || current_database() || ' login'; end $$;
             do $$ begin execute 'grant all on idempotency, idempotency_event to slow_' || current_database(); end $$",
        )
        .await;
        let url = cli.db.url.replace("idemctl@", &format!("slow_{}@", cli.db.name));
        let run = crate::support::idemctl(&["list", "--statement-timeout", "1h"]).on(&url);
        let mut spawned = if pty { run.pty() } else { run }.spawn();
        let running = "select count(*) from pg_stat_activity
                        where datname = current_database() and state = 'active' and query like '%idemctl:list%'
                          and pid <> pg_backend_pid()";
        until("the statement runs", async || cli.number(running).await == 1).await;
        if pty {
            spawned.type_in("\x03").await;
        } else {
            spawned.signal(signal);
        }
        let output = spawned.wait().await;
        assert_eq!(output.code, 130, "{}", output.transcript());
        assert!(
            output.transcript().contains("error: interrupted"),
            "{}",
            output.transcript()
        );
        until(
            &format!(
                "the server has stopped ({signal}, {pty}, {})",
                output.transcript()
            ),
            async || cli.number(running).await == 0,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_in_bulk_ends_after_the_key_under_way() {
    let cli = filled().await;
    let holder = cli.db.connect().await;
    holder
        .batch_execute(
            "begin; select 1 from idempotency where client_id = 'shop-9' and key = 'order-1' for update",
        )
        .await
        .unwrap();
    let input = "shop-9\torder-1\nshop-9\torder-2\n";
    let spawned = cli
        .command(&["release", "-", "--yes", "-o", "json", "--lock-timeout", "30s"])
        .stdin(input)
        .spawn();
    let waiting = format!(
        "select count(*) from {} where datname = current_database() and wait_event_type = 'Lock'",
        cli.db.activity()
    );
    until("it waits for the row", async || cli.number(&waiting).await > 0).await;
    spawned.signal(Signal::SIGINT);
    // The key under way is finished, whatever becomes of it; the next is not begun.
    holder.batch_execute("commit").await.unwrap();
    let output = calm(spawned.wait().await);
    assert_eq!(output.code, 130, "{}", output.transcript());
    assert_eq!(
        cli.number("select count(*) from idempotency where key = 'order-2' and client_id = 'shop-9'")
            .await,
        1
    );
    assert!(
        output.stdout.contains("order-1") && !output.stdout.contains("order-2"),
        "{}",
        output.stdout
    );
}

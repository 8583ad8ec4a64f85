//! What the screen shows, and that it follows the table.

use std::time::Duration;

use super::{on_screen, show};
use crate::cli::fixture::{Cli, cli, filled};
use crate::support::{Proxy, Tmux};

#[tokio::test(flavor = "multi_thread")]
async fn the_table_as_it_lives() {
    let (cli, tmux) = on_screen(&[], &[]).await;
    let screen = tmux.shows("expired 3 (oldest ").await;
    assert!(screen.contains("in progress 1 "), "{screen}");
    assert!(screen.contains("newest 7: done 2 failed 1"), "{screen}");
    assert!(
        screen.contains("no janitor has looked at this database yet"),
        "{screen}"
    );
    assert!(
        screen.contains("ago  release shop-2 gone by bob@ops-2"),
        "{screen}"
    );
    assert_eq!(screen.lines().count(), 24, "{screen}");
    // A claim, whose lease then ends.
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, lease_token, locked_until)
         values ('shop-7', 'fresh', '', gen_random_uuid(), now() + interval '1 h')",
    )
    .await;
    tmux.shows("in progress 2 ").await;
    cli.execute("update idempotency set locked_until = now() where key = 'fresh'")
        .await;
    tmux.shows_all(&["shop-7", "expired 4 "]).await;
    tmux.keys(&["q"]).await;
    tmux.ended(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_are_what_the_server_counts() {
    let cli = cli().await;
    let tmux = Tmux::start(80, 24).await;
    tmux.run(&cli.db.url, &[], &["top", "--interval", "1s"]).await;
    let idle = tmux.shows("claims/s           0.0").await;
    assert!(idle.contains("deletions/s        0.0"), "{idle}");
    let rate = |screen: &str, name: &str| {
        let line = screen
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_default();
        let figure = line
            .split_whitespace()
            .nth(1)
            .and_then(|word| word.parse::<f64>().ok());
        figure.unwrap_or_default()
    };
    // Again and again, until it was seen: a machine that is busy elsewhere may miss the figure of one second.
    let claims = "insert into idempotency (client_id, key, fingerprint, status)
         select 'c', gen_random_uuid()::text, '', 'done' from generate_series(1, 1000)";
    let busy = meanwhile(
        &cli,
        claims,
        tmux.until("claims", |screen| rate(screen, "claims/s") > 100.0),
    );
    assert!(rate(&busy.await, "deletions/s") < 1.0);
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, status)
         select 'd', i::text, '', 'done' from generate_series(1, 200000) i",
    )
    .await;
    let deletions = "delete from idempotency
         where key in (select key from idempotency where client_id = 'd' limit 1000) and client_id = 'd'";
    meanwhile(
        &cli,
        deletions,
        tmux.until("deletions", |screen| rate(screen, "deletions/s") > 100.0),
    )
    .await;
    // The past stays to be seen: at this interval for most of a minute.
    tmux.until("a picture", |screen| {
        let line = screen.lines().find(|line| line.starts_with("claims/s"));
        line.is_some_and(|line| line.contains(" 0.0 ") && line.contains('█'))
    })
    .await;
}

/// Runs the statement every tenth of a second until the screen shows something.
async fn meanwhile<T>(cli: &Cli, statement: &str, shown: impl Future<Output = T>) -> T {
    let work = async {
        let mut turn = tokio::time::interval(Duration::from_millis(100));
        loop {
            turn.tick().await;
            cli.execute(statement).await;
        }
    };
    tokio::select! {
        shown = shown => shown,
        () = work => unreachable!(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_follows_the_size_of_the_terminal() {
    let (_cli, tmux) = on_screen(&[], &[]).await;
    tmux.resize(60, 20).await;
    let small = tmux.until("60x20", |screen| {
        screen.lines().count() == 20 && screen.contains("q quit") && !screen.contains("owner")
    });
    assert!(small.await.lines().all(|line| line.chars().count() <= 60));
    tmux.resize(200, 50).await;
    let large = tmux.until("200x50", |screen| {
        screen.lines().last().is_some_and(|line| line.contains("q quit")) && screen.contains("owner")
    });
    assert_eq!(large.await.lines().count(), 50);
    tmux.resize(40, 10).await;
    tmux.shows("40x10 is too small").await;
    tmux.resize(80, 24).await;
    tmux.shows("> shop-9").await;
    tmux.keys(&["q"]).await;
    tmux.ended(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_unless_nobody_wants_them() {
    // SGR 30 to 49 are colours (ECMA-48, 8.3.117); bold and reversed text are 1 and 7.
    let colour = regex::Regex::new(r"\x1b\[(\d+;)*(3[0-7]|4[0-7]|38|48)(;\d+)*m").unwrap();
    let (_cli, tmux) = on_screen(&[], &[]).await;
    assert!(colour.is_match(&tmux.coloured_screen().await));
    for (env, more) in [(&[("NO_COLOR", "1")][..], &[][..]), (&[], &["--color", "never"])] {
        let (_cli, tmux) = on_screen(env, more).await;
        let screen = tmux.coloured_screen().await;
        assert!(!colour.is_match(&screen), "{screen:?}");
        let reversed = screen.lines().find(|line| line.contains("> shop-9"));
        assert!(reversed.is_some_and(|line| line.contains("7m")), "{screen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_leaves_the_last_figures_and_is_found_again() {
    let cli = filled().await;
    let proxy = Proxy::start(cli.db.target()).await;
    let url = cli.db.url_through(proxy.address.port());
    let tmux = Tmux::start(100, 24).await;
    tmux.run(&url, &[], &["top", "--interval", "100ms"]).await;
    tmux.shows("> shop-9").await;
    proxy.refuse(true);
    proxy.cut();
    let away = tmux.shows("NO ANSWER for ").await;
    assert!(
        away.contains("all of this is of 20") && away.contains("> shop-9"),
        "{away}"
    );
    cli.execute("delete from idempotency where client_id = 'shop-9'")
        .await;
    // Keys work meanwhile.
    tmux.keys(&["?"]).await;
    tmux.shows("any key: back").await;
    tmux.keys(&["x"]).await;
    proxy.refuse(false);
    tmux.until("the database is back", |screen| {
        screen.contains("> shop-1") && !screen.contains("NO ANSWER")
    })
    .await;
    // One that only stays silent is told of, too, and nobody waits for it.
    proxy.hold();
    tmux.shows("it has not answered yet").await;
    tmux.keys(&["q"]).await;
    tmux.ended(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_alone_and_what_a_role_may_not_see() {
    let _private = crate::support::privately("it makes roles");
    let cli = filled().await;
    cli.execute(
        "do $$ begin execute 'create role peep_' || current_database() || ' login'; end $$;
         do $$ begin execute 'grant select on idempotency, idempotency_event to peep_' || current_database(); end $$",
    )
    .await;
    let tmux = Tmux::start(80, 24).await;
    let url = cli.db.url.replace("idemctl@", &format!("peep_{}@", cli.db.name));
    tmux.run(&url, &[], &["top", "--client", "shop-1"]).await;
    // A picture that is half drawn may be seen, too.
    let parts = [
        "> shop-1",
        "Expired keys of shop-1, oldest first",
        "not known: the janitor's jobs: ",
    ];
    let screen = tmux.shows_all(&parts).await;
    assert!(!screen.contains("shop-9"), "{screen}");
    tmux.keys(&["q"]).await;
    tmux.ended(0).await;
    show(&cli, &tmux, &[], &[]).await;
}

/// As when a node of Citus is down: the server that we are connected to is there, and so is what it knows by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_away_leaves_the_rest() {
    let _private = crate::support::privately("it makes roles");
    let cli = filled().await;
    let role = format!("peep_{}", cli.db.name);
    cli.execute(&format!(
        "create role {role} login; grant select on all tables in schema public to {role};
         create function away() returns bool language plpgsql as $$ begin
           raise exception using errcode = '08006', message = 'a node is away'; end $$;
         alter table idempotency_event enable row level security;
         create policy away on idempotency_event using (away())"
    ))
    .await;
    let tmux = Tmux::start(100, 24).await;
    let url = cli.db.url.replace("idemctl@", &format!("{role}@"));
    tmux.run(&url, &[], &["top", "--interval", "100ms"]).await;
    let parts = ["> shop-9", "not known: events: ", "a node is away"];
    let screen = tmux.shows_all(&parts).await;
    assert!(!screen.contains("NO ANSWER"), "{screen}");
}

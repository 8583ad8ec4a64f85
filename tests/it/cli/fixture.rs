//! A database with a key in every state, and a provider that knows of one of them.

use idemctl::ops::migrate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Database, Output, Redactor, Run, database, idemctl, temp_dir};

/// What must never be printed.
pub(crate) const SECRET: &str = "s3cr3t-Pa55";

/// The database of one test, and the configuration file for it.
pub(crate) struct Cli {
    pub(crate) db: Database,
    pub(crate) dir: tempfile::TempDir,
}

/// A migrated database without a row.
pub(crate) async fn cli() -> Cli {
    let db = database().await;
    migrate::run(&db.settings(), None, &db.migration().await)
        .await
        .unwrap();
    Cli { db, dir: temp_dir() }
}

/// One key in each state, as services make them.
pub(crate) const ROWS: &str = r#"
insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at, completed_at, attempt,
                         lease_token, owner, operation, provider, status_code, response, response_headers,
                         response_body, last_error)
values
 ('shop-1', 'order-1', repeat('ab', 32), 'in_progress', now() - interval '14 min', now() - interval '15 min', null,
  1, 'a0000000-0000-4000-8000-000000000001', 'pay-7f9c:4121:9d2c', 'POST /payments', 'acme', null, null, null,
  null, 'timeout after 10 s'),
 ('shop-1', 'order-7', repeat('cd', 32), 'done', now() - interval '3 h', now() - interval '3 h',
  now() - interval '3 h', 2, 'a0000000-0000-4000-8000-000000000002', 'pay-7f9c:4121:9d2c', 'POST /payments',
  'acme', 201, '{"charge_id":"pay_6A9","card":"4242424242424242","client_secret":"hush"}',
  '[["content-type","application/json"]]', null, null),
 ('shop-2', 'receipt-12', repeat('ef', 32), 'done', now() - interval '2 h', now() - interval '2 h',
  now() - interval '2 h', 1, 'a0000000-0000-4000-8000-000000000003', null, null, null, 200, null,
  '[["Content-Type","text/plain"]]', 'Thank you!', null),
 ('shop-2', 'order-3', repeat('12', 32), 'failed', now() - interval '1 h', now() - interval '1 h',
  now() - interval '30 min', 1, 'a0000000-0000-4000-8000-000000000004', null, 'POST /payments', 'acme', 500,
  '{"title":"Outcome unknown"}', '[["content-type","application/problem+json"]]', null, 'connection reset'),
 ('shop-2', 'order-9', repeat('34', 32), 'in_progress', now() + interval '10 min', now() - interval '5 s', null,
  1, 'a0000000-0000-4000-8000-000000000005', 'pay-7f9c:4121:9d2c', 'POST /payments', 'acme', null, null, null,
  null, null),
 ('shop-9', 'order-1', repeat('56', 32), 'in_progress', now() - interval '2 h', now() - interval '2 h', null,
  1, 'a0000000-0000-4000-8000-000000000006', 'pay-old:1:2', 'POST /payments', null, null, null, null, null, null),
 ('shop-9', 'order-2', repeat('78', 32), 'in_progress', now() - interval '2 h', now() - interval '2 h', null,
  1, 'a0000000-0000-4000-8000-000000000007', 'pay-old:1:2', 'POST /payments', null, null, null, null, null, null);
insert into idempotency_event (client_id, key, action, os_user, host, reason)
values ('shop-2', 'order-3', 'fail', 'alice', 'ops-1', 'paid by bank transfer'),
       ('shop-2', 'gone', 'release', 'bob', 'ops-2', 'the client asked');
"#;

/// The same with rows.
pub(crate) async fn filled() -> Cli {
    let cli = cli().await;
    cli.execute(ROWS).await;
    cli
}

impl Cli {
    pub(crate) async fn execute(&self, sql: &str) {
        self.db.client.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.db.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn text(&self, sql: &str) -> String {
        self.db.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Everything in both tables, to see that nothing was changed.
    pub(crate) async fn everything(&self) -> String {
        self.text(
            "select coalesce((select string_agg(k::text, E'\\n' order by k.client_id, k.key) from idempotency k), '')
                 || coalesce((select string_agg(e::text, E'\\n' order by e.id) from idempotency_event e), '')",
        )
        .await
    }

    /// A command on the database, ready to be given more.
    pub(crate) fn command<S: AsRef<str>>(&self, args: &[S]) -> Run {
        idemctl(args).on(&self.db.url)
    }

    /// Runs a command on the database.
    pub(crate) async fn run<S: AsRef<str>>(&self, args: &[S]) -> Output {
        calm(self.command(args).run().await)
    }

    /// Writes the configuration file and gives its path.
    pub(crate) fn config(&self, text: &str) -> String {
        let path = self.dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }
}

/// What holds for every run: no panic, no secret, and a failure says so on stderr.
#[track_caller]
pub(crate) fn calm(output: Output) -> Output {
    let all = output.transcript();
    assert!(output.code != 70 && output.code != 101, "{all}");
    assert!(!all.contains("panicked"), "{all}");
    assert!(!all.contains(SECRET), "{all}");
    if output.code != 0 {
        assert!(output.stderr.contains("error: "), "{all}");
    }
    output
}

/// Output of the fixture, comparable.
pub(crate) fn redactor(cli: &Cli) -> Redactor {
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    Redactor::new()
        .literal(host, "[host]")
        .literal(cli.db.socket_dir.to_string_lossy().into_owned(), "[socket]")
        .literal(format!("dbname={}", cli.db.name), "dbname=[database]")
        .pattern(&format!(r"\b{}\b", cli.db.user()), "idemctl")
        .literal(cli.dir.path().to_string_lossy().into_owned(), "[dir]")
        .pattern(r"\b[0-9a-f]{60,}\b", "[hex]")
}

/// The section of a provider that answers at an address.
pub(crate) fn provider(name: &str, address: std::net::SocketAddr) -> String {
    format!(
        r#"[providers.{name}]
kind = "http"
url = "http://{address}/v1/payments?merchant_order_id={{order_id}}"
headers = {{ Authorization = {{ prefix = "Bearer ", env = "ACME_KEY" }} }}
timeout = "2s"
find = "/data"
match = "/order"
status = "/status"
reference = "/id"
amount = "/amount"
currency = "/currency"
lag = "60s"
verdicts = {{ charged = ["succeeded"], authorized = ["held"], pending = ["processing"], not_charged = ["failed"] }}
"#
    )
}

/// A provider whose answer depends on the order id: `word of order` says the word; anything else is not found,
/// and a `500` is a failure.
pub(crate) async fn answering(words: &'static [(&'static str, &'static str)]) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    let mut buffer = [0; 1024];
                    match stream.read(&mut buffer).await {
                        Ok(length @ 1..) => request.extend_from_slice(&buffer[..length]),
                        _ => return,
                    }
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                let order = request.split(['=', ' ']).nth(2).unwrap_or_default();
                let word = words
                    .iter()
                    .find(|(known, _)| *known == order)
                    .map(|(_, word)| *word);
                let (status, body) = match word {
                    Some("500") => ("500 Internal Server Error", String::new()),
                    Some(word) => (
                        "200 OK",
                        format!(
                            r#"{{"data":[{{"id":"pay_1","order":"{order}","status":"{word}","amount":4990,"currency":"EUR"}}]}}"#
                        ),
                    ),
                    None => ("200 OK", r#"{"data":[]}"#.to_owned()),
                };
                let reply = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(reply.as_bytes()).await;
            });
        }
    });
    address
}

/// A table whose columns are as wide as the ages of the moment, and seconds in CSV, made comparable.
pub(crate) fn without_widths(text: &str) -> String {
    let blanks = regex::Regex::new("  +").unwrap();
    let seconds = regex::Regex::new(r"(\[time\],)-?[\d.]+(,,,,)").unwrap();
    let text = blanks.replace_all(text, "  ");
    seconds.replace_all(&text, "$1[seconds]$2").into_owned()
}

//! A service dies between the charge and writing it down; the operator asks Stripe.

use idemctl::protocol::Request;
use serde_json::Value;

use super::api::{Api, SECRET};
use crate::protocol::{Table, acquire, open, replay, request};
use crate::support::{Output, Run, Spawned, connect, idemctl, localstripe, stateful_mock, temp_dir, until};

const URL: &str = "TEST_URL";
const PORT: &str = "TEST_STRIPE_PORT";
const ORDER: &str = "TEST_ORDER";

/// The request of an order.
fn claim(order: &str) -> Request {
    let request = request(order).operation("POST /payments").unwrap();
    request.provider("acme").unwrap().order_id(order).unwrap()
}

/// A service: claims the key, charges, and never gets to complete it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a child process"]
async fn child_charges() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let client = connect(&variable(URL)).await;
    let order = variable(ORDER);
    let lease = acquire(&open(&client).await, &client, &claim(&order)).await;
    let api = Api {
        port: variable(PORT).parse().unwrap(),
    };
    let form = [
        ("amount", "4990"),
        ("currency", "eur"),
        ("payment_method", "pm_card_visa"),
        ("confirm", "true"),
        ("metadata[order_id]", lease.order_id()),
    ];
    let key = format!("idempotency-key: {}\r\n", lease.provider_key());
    let made = api.post("/v1/payment_intents", &form, &key).await.ok();
    println!("charged {}", made["id"].as_str().unwrap());
    std::future::pending::<()>().await;
}

struct Shop {
    table: Table,
    config: String,
    _dir: tempfile::TempDir,
}

impl Shop {
    async fn new(section: &str) -> Self {
        let dir = temp_dir();
        let config = dir.path().join("config.toml");
        std::fs::write(&config, section).unwrap();
        Self {
            table: Table::new().await,
            config: config.to_string_lossy().into_owned(),
            _dir: dir,
        }
    }

    fn command(&self, args: &[&str]) -> Run {
        idemctl(&[args, &["-c", &self.config]].concat())
            .on(&self.table.db.url)
            .env("STRIPE_KEY", SECRET)
    }

    async fn run(&self, args: &[&str]) -> Output {
        let output = self.command(args).run().await;
        assert!(!output.transcript().contains(SECRET), "{}", output.transcript());
        output
    }

    async fn asks(&self, args: &[&str]) -> (i32, Value) {
        let output = self.run(&[args, &["-o", "json"]].concat()).await;
        let json = serde_json::from_str(&output.stdout);
        (
            output.code,
            json.unwrap_or_else(|_| panic!("{}", output.transcript())),
        )
    }
}

fn section(port: u16, more: &str) -> String {
    format!(
        "[providers.acme]\nkind = \"stripe\"\nurl = \"http://127.0.0.1:{port}\"\nsecret = {{ env = \"STRIPE_KEY\" }}\ntest_mode = true\n{more}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_charge_of_a_dead_service_is_found() {
    let port = localstripe().await.port;
    let response = "response = { status_code = 201, body = { payment = \"{/id}\", amount = \"{/amount}\" } }";
    let shop = Shop::new(&section(port, response)).await;
    let order = "story-1";
    let env = [
        (URL, shop.table.db.url.as_str()),
        (PORT, &port.to_string()),
        (ORDER, order),
    ];
    let mut service = Spawned::test("stripe::story::child_charges", &env);
    let line = service.wait_for_line("charged ").await;
    let reference = line.rsplit(' ').next().unwrap().to_owned();
    service.kill9().await;
    shop.table.lapse(order).await;

    let output = shop.run(&["inspect", "shop-1", order, "--provider"]).await;
    let said = output.ok();
    assert!(said.contains("acme says of story-1: charged"), "{said}");
    assert!(said.contains(&reference) && said.contains("4990 eur"), "{said}");
    assert!(said.contains("do not release"), "{said}");
    for asked in [order, &reference] {
        let (code, json) = shop.asks(&["provider", "status", asked]).await;
        assert_eq!((code, &json["verdict"]), (0, &"charged".into()), "{json}");
        assert_eq!(json["reference"], reference.as_str());
    }
    // What never was is not there, and only the row knows since when it could be.
    let (code, json) = shop.asks(&["provider", "status", "story-never"]).await;
    assert_eq!((code, &json["verdict"]), (8, &"unknown".into()), "{json}");

    // The response is stored, the client's retry gets it, and nothing is charged twice.
    let reconcile = [
        "reconcile",
        "shop-1",
        order,
        "--yes",
        "--reason",
        "the service died",
    ];
    shop.run(&reconcile).await.ok();
    let replayed = replay(&shop.table.keys, &shop.table.db.client, &claim(order)).await;
    assert_eq!(replayed.status_code(), 201);
    assert_eq!(
        serde_json::from_slice::<Value>(replayed.body()).unwrap(),
        serde_json::json!({"payment": reference, "amount": 4990})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_never_charged_is_told_after_the_lag() {
    let port = stateful_mock().await.port;
    let shop = Shop::new(&section(port, "object = \"charge\"\nlag = \"30s\"")).await;
    let (client, order) = (&shop.table.db.client, "story-2");
    let request = request(order).provider("acme").unwrap();
    let _abandoned = acquire(&shop.table.keys, client, &request).await;
    shop.table.lapse(order).await;
    let inspect = ["inspect", "shop-1", order, "--provider"];
    let output = shop.run(&inspect).await;
    assert_eq!(output.code, 8, "{}", output.transcript());
    assert!(
        output.stdout.contains("proves nothing until 30s"),
        "{}",
        output.transcript()
    );
    let sql = "update idempotency set locked_until = now() - interval '31 s' where key = 'story-2'";
    assert_eq!(shop.table.execute(sql).await, 1);
    let output = shop.run(&inspect).await;
    assert!(output.ok().contains("acme says of story-2: not_charged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stripe_that_is_gone_is_unknown() {
    let shop = Shop::new(&section(1, "timeout = \"500ms\"")).await;
    let (code, json) = shop.asks(&["provider", "status", "pi_1"]).await;
    assert_eq!((code, &json["verdict"]), (8, &"unknown".into()), "{json}");
    let listed = shop.run(&["provider", "list"]).await.ok();
    assert!(listed.contains("stripe") && listed.contains("window"), "{listed}");
}

/// The servers end with the process that started them, even when it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn the_servers_of_a_killed_test_process_end() {
    let mut tests = Spawned::test("stripe::story::child_starts_servers", &[]);
    let line = tests.wait_for_line("servers at ").await;
    let ports: Vec<u16> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert_eq!(ports.len(), 2, "{line}");
    for port in &ports {
        tokio::net::TcpStream::connect(("127.0.0.1", *port))
            .await
            .unwrap();
    }
    tests.kill9().await;
    for port in ports {
        until("the server is gone", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a child process"]
async fn child_starts_servers() {
    println!(
        "servers at {} {}",
        localstripe().await.port,
        stateful_mock().await.port
    );
    std::future::pending::<()>().await;
}

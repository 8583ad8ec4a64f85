//! The parts of a run: a database, a provider, two payment services, and the network between them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use tokio_postgres::Client;

use super::client::Addresses;
use super::history::{Call, Charge, Id, Row};
use super::naive;
use super::postgres::{Postgres, answers};
use crate::support::{Pgbouncer, Proxy, Run, Spawned, Target, example, idemctl, temp_dir};

/// How many services share the table.
pub(super) const SERVICES: usize = 2;

/// The service that asks the database once for equal requests of one moment.
pub(super) const SHARES_FLIGHTS: usize = 1;

/// What runs, and how.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// What the provider makes of idempotency keys: `honour` or `ignore`.
    pub(super) keys: &'static str,
    /// How long the provider takes for a charge, in milliseconds.
    pub(super) delay: u64,
    /// How long a request may take before a retry takes over, in milliseconds.
    pub(super) lease: u64,
    /// How long after an attempt its charge may still appear, in milliseconds; what the services wait for where they
    /// look charges up.
    pub(super) lag: u64,
    /// More arguments of the services.
    pub(super) more: &'static [&'static str],
    /// Two services of the kind that this project is there to replace, instead of the example.
    pub(super) naive: bool,
    /// There is something wrong that has to be caught, soon if possible.
    pub(super) mistake: bool,
    /// Settings of the database.
    pub(super) database: &'static [(&'static str, &'static str)],
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            keys: "honour",
            delay: 100,
            lease: 2_000,
            lag: 3_000,
            more: &[],
            naive: false,
            mistake: false,
            database: &[],
        }
    }
}

/// A running service, and the way to it.
struct Service {
    process: Spawned,
    front: Proxy,
}

/// Everything of one run.
pub(super) struct World {
    setup: Setup,
    pub(super) postgres: Postgres,
    /// Between each service and the database; the second goes through a PgBouncer as well.
    pub(super) to_database: [Proxy; SERVICES],
    pooler: Pgbouncer,
    /// Between the services and the provider.
    pub(super) to_provider: Proxy,
    /// The provider itself.
    pub(super) provider: SocketAddr,
    _provider: Spawned,
    services: Vec<Option<Service>>,
    pub(super) addresses: Addresses,
    http: reqwest::Client,
    /// What the services wrote to their logs.
    pub(super) said: String,
    dir: tempfile::TempDir,
}

impl World {
    pub(super) async fn start(setup: Setup) -> Self {
        // The client wants one even for plain http; a second installation changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let postgres = Postgres::start(setup.database).await;
        idemctl(&["migrate"]).on(&postgres.url()).run().await.ok();
        let delay = setup.delay.to_string();
        let args = ["--listen", "127.0.0.1:0", "--keys", setup.keys, "--delay", &delay];
        // Builds the examples when it is the first.
        let run = tokio::task::spawn_blocking({
            let args = args.map(str::to_owned);
            move || example("provider", &args)
        });
        let mut process = run.await.expect("the examples build").spawn();
        let provider = listening(&mut process).await;
        let pooler = postgres.pooler().await;
        let behind = SocketAddr::from(([127, 0, 0, 1], pooler.port));
        let mut world = Self {
            to_database: [
                Proxy::start(Target::Unix(postgres.socket())).await,
                Proxy::start(Target::Tcp(behind)).await,
            ],
            pooler,
            to_provider: Proxy::start(Target::Tcp(provider)).await,
            postgres,
            provider,
            _provider: process,
            services: (0..SERVICES).map(|_| None).collect(),
            addresses: Arc::new(Mutex::new(vec![([127, 0, 0, 1], 9).into(); SERVICES])),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            said: String::new(),
            dir: temp_dir(),
            setup,
        };
        for place in 0..SERVICES {
            world.start_service(place).await;
        }
        world
    }

    /// Starts the service of this place; clients find it where it is now.
    pub(super) async fn start_service(&mut self, place: usize) {
        // A service does not start without its database.
        let client = self.postgres.client().await;
        if place == 1 {
            // The pooler may have to notice first that the database is back.
            answers(&self.pooler.url).await;
        }
        let provider = format!("http://{}", self.to_provider.address);
        let address = if self.setup.naive {
            naive::start(client, provider).await
        } else {
            let mut process = self.service(place, &provider).spawn();
            let front = Proxy::start(Target::Tcp(listening(&mut process).await)).await;
            let address = front.address;
            self.services[place] = Some(Service { process, front });
            address
        };
        self.addresses.lock().unwrap()[place] = address;
    }

    /// The services are not quite alike: the second goes through PgBouncer, and asks the database only once for equal
    /// requests of one moment.
    fn service(&self, place: usize, provider: &str) -> Run {
        let lease = self.setup.lease.to_string();
        let lag = self.setup.lag.to_string();
        let args = [
            "--listen",
            "127.0.0.1:0",
            "--provider",
            provider,
            "--lease",
            &lease,
            "--provider-timeout",
            "1000",
            "--lag",
            &lag,
        ];
        let flight: &[&str] = if place == SHARES_FLIGHTS {
            &["--single-flight"]
        } else {
            &[]
        };
        let url = Postgres::url_at(self.to_database[place].address.port());
        example("payments", &[&args, flight, self.setup.more].concat()).on(&url)
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self, place: usize) {
        if let Some(service) = self.services[place].take() {
            let output = service.process.kill9().await;
            self.said.push_str(&output.stderr);
        }
    }

    /// Ends all services, for what they wrote.
    pub(super) async fn end(&mut self) {
        for place in 0..SERVICES {
            self.kill(place).await;
        }
    }

    /// Stops a service in its tracks, or lets it go on.
    pub(super) fn signal(&self, place: usize, signal: Signal) {
        if let Some(service) = &self.services[place] {
            service.process.signal(signal);
        }
    }

    /// Breaks all connections between clients and services.
    pub(super) fn cut_clients(&self) {
        for service in self.services.iter().flatten() {
            service.front.cut();
        }
    }

    /// The next charges go wrong in these ways.
    pub(super) async fn fault(&self, faults: &[&str]) {
        let answer = self
            .http
            .post(format!("http://{}/v1/faults", self.provider))
            .json(faults)
            .send()
            .await
            .expect("the provider lives");
        assert!(answer.status().is_success(), "{faults:?}");
    }

    /// All money that moved.
    pub(super) async fn ledger(&self) -> Vec<Charge> {
        #[derive(serde::Deserialize)]
        struct Ledger {
            charges: Vec<Charge>,
        }
        self.books::<Ledger>("ledger").await.charges
    }

    /// All times that the provider was told to charge.
    pub(super) async fn calls(&self) -> Vec<Call> {
        #[derive(serde::Deserialize)]
        struct Calls {
            calls: Vec<Call>,
        }
        self.books::<Calls>("calls").await.calls
    }

    async fn books<T: serde::de::DeserializeOwned>(&self, which: &str) -> T {
        let url = format!("http://{}/v1/{which}", self.provider);
        let answer = self.http.get(url).send().await.expect("the provider lives");
        answer.json().await.expect("as its head says")
    }

    /// The keys that `idemctl reconcile` gave up.
    pub(super) async fn released(&self) -> BTreeSet<Id> {
        let query = "select distinct client_id, key from idempotency_event
                      where client_id is not null and 'release' in (action, details ->> 'action')";
        let rows = self.client().await.query(query, &[]).await.expect("the log");
        rows.iter().map(|row| Id::new(row.get(0), row.get(1))).collect()
    }

    /// The table.
    pub(super) async fn rows(&self) -> Vec<Row> {
        let query = "select client_id, key, status, status_code,
                            coalesce(response_body, convert_to(response::text, 'UTF8')), attempt
                       from idempotency";
        let rows = self.client().await.query(query, &[]).await.expect("the table");
        rows.iter()
            .map(|row| Row {
                id: Id::new(row.get(0), row.get(1)),
                status: row.get(2),
                status_code: row.get(3),
                body: row.get(4),
                attempt: row.get(5),
            })
            .collect()
    }

    /// How many rows nobody has ended.
    pub(super) async fn in_progress(&self) -> i64 {
        let query = "select count(*) from idempotency where status = 'in_progress'";
        let row = self.client().await.query_one(query, &[]).await;
        row.expect("the table").get(0)
    }

    /// How many events of the operator's log have this action.
    pub(super) async fn events(&self) -> Vec<(String, i64)> {
        let query = "select coalesce(details ->> 'action', action), count(*)
                       from idempotency_event where client_id is not null group by 1 order by 1";
        let rows = self.client().await.query(query, &[]).await.expect("the log");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    pub(super) async fn client(&self) -> Client {
        self.postgres.client().await
    }

    /// `idemctl reconcile` of everything expired, with the provider as it is configured for this table.
    pub(super) async fn reconcile(&self) -> crate::support::Output {
        let config = self.dir.path().join("idemctl.toml");
        let text = format!(
            r#"[providers.acme]
kind = "http"
url = "http://{}/v1/charges?order_id={{order_id}}"
timeout = "5s"
find = "/data"
match = "/order_id"
status = "/status"
reference = "/id"
amount = "/amount"
currency = "/currency"
lag = "{}ms"
verdicts = {{ charged = ["succeeded"] }}
response = {{ status_code = 201, body = {{ charge_id = "{{/id}}", amount = "{{/amount}}" }} }}
"#,
            self.provider, self.setup.lag
        );
        std::fs::write(&config, text).expect("our own directory");
        let config = config.to_string_lossy();
        let args = [
            "reconcile",
            "--expired",
            "--yes",
            "--reason",
            "chaos",
            "-c",
            &config,
            "-o",
            "json",
        ];
        idemctl(&args).on(&self.postgres.url()).run().await
    }
}

/// Where a process says that it listens.
async fn listening(process: &mut Spawned) -> SocketAddr {
    let line = process.wait_for_line("listening on http://").await;
    let (_, address) = line.split_once("http://").expect("as waited for");
    address.trim().parse().expect("an address")
}

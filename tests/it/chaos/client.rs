//! Clients that retry: several shops, few contended keys and many others, two services to turn to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::history::{Exchange, Heard, Id, Wish};

/// How many shops there are.
const SHOPS: u64 = 3;

/// How many keys of a moment many clients fight for.
const HOT_KEYS: u64 = 6;

/// How long the same keys are the hot ones.
const MOMENT: Duration = Duration::from_secs(3);

/// Where the services are at the moment; a dead one keeps its place until it is back.
pub(super) type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

/// What the clients of one run share.
pub(super) struct Shops {
    addresses: Addresses,
    http: reqwest::Client,
    log: Mutex<Vec<Exchange>>,
    /// Keys that have their final answer.
    answered: Mutex<HashMap<Id, u64>>,
    started: Instant,
}

/// The right wish for a key: amount and card follow from its name.
pub(super) fn wish(id: Id) -> Wish {
    let hash = id.order().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Wish {
        amount: 100 + hash % 900,
        declined: hash.is_multiple_of(11),
        wrong: false,
        id,
    }
}

impl Shops {
    pub(super) fn new(addresses: Addresses) -> Arc<Self> {
        // The client wants one even for plain http; a second installation changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            // A client that is served by a dead connection of the past tells nothing about the service.
            .pool_max_idle_per_host(0)
            .build()
            .unwrap();
        Arc::new(Self {
            addresses,
            http,
            log: Mutex::default(),
            answered: Mutex::default(),
            started: Instant::now(),
        })
    }

    /// All that was said so far.
    pub(super) fn log(&self) -> Vec<Exchange> {
        self.log.lock().unwrap().clone()
    }

    /// Sends one request to one of the services, and notes what came of it.
    pub(super) async fn ask(&self, wish: &Wish, service: usize, patience: Duration) -> Heard {
        let (place, address) = {
            let addresses = self.addresses.lock().unwrap();
            let place = service % addresses.len();
            (place, addresses[place])
        };
        let asked = Instant::now();
        let heard = match tokio::time::timeout(patience, self.send(wish, address)).await {
            Ok(Ok(heard)) => heard,
            Ok(Err(error)) => Heard::Nothing(error.to_string()),
            Err(_) => Heard::Nothing("timed out".to_owned()),
        };
        if heard.is_final() {
            let mut answered = self.answered.lock().unwrap();
            answered.entry(wish.id.clone()).or_insert(wish.amount);
        }
        self.log.lock().unwrap().push(Exchange {
            wish: wish.clone(),
            heard: heard.clone(),
            service: place,
            started: asked,
            ended: Instant::now(),
        });
        heard
    }

    async fn send(&self, wish: &Wish, address: SocketAddr) -> reqwest::Result<Heard> {
        let mut body = serde_json::json!({ "amount": wish.amount, "currency": "EUR" });
        if wish.declined {
            body["card"] = "declined".into();
        }
        let answer = self
            .http
            .post(format!("http://{address}/payments"))
            .header("idempotency-key", &wish.id.key)
            .header("x-client", &wish.id.client)
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await?;
        let replayed = answer.headers().contains_key("idempotent-replayed");
        Ok(Heard::Answer {
            status: answer.status().as_u16(),
            replayed,
            body: answer.bytes().await?.to_vec(),
        })
    }

    /// One client, until the time is over.
    pub(super) async fn client(self: Arc<Self>, number: u64, mut rng: Rng, until: Instant) {
        let mut own = 0;
        while Instant::now() < until {
            let shop = format!("shop-{}", rng.u64(1..=SHOPS));
            let key = if rng.u8(..100) < 60 {
                let moment = self.started.elapsed().as_millis() / MOMENT.as_millis();
                format!("hot-{moment}-{}", rng.u64(1..=HOT_KEYS))
            } else {
                own += 1;
                format!("order-{number}-{own}")
            };
            let wish = wish(Id::new(&shop, &key));
            self.insist(&wish, &mut rng, until).await;
            if rng.u8(..100) < 15 {
                self.cheat(&wish, &mut rng).await;
            }
            pause(&mut rng, 0..40).await;
        }
    }

    /// Retries as clients do: a few times, at either service, some for long, none for ever.
    async fn insist(&self, wish: &Wish, rng: &mut Rng, until: Instant) {
        let tries = if rng.u8(..100) < 25 { 30 } else { rng.u32(1..=6) };
        for _ in 0..tries {
            let patience = Duration::from_millis(rng.u64(100..1_500));
            let heard = self.ask(wish, rng.usize(..2), patience).await;
            if heard.is_definite() || Instant::now() >= until {
                return;
            }
            pause(rng, 10..300).await;
        }
    }

    /// Another amount under a key that has its answer.
    async fn cheat(&self, wish: &Wish, rng: &mut Rng) {
        let known = self.answered.lock().unwrap().contains_key(&wish.id);
        if known {
            let wrong = Wish {
                amount: wish.amount + 1_000,
                wrong: true,
                ..wish.clone()
            };
            let patience = Duration::from_millis(rng.u64(100..1_500));
            self.ask(&wrong, rng.usize(..2), patience).await;
        }
    }

    /// The wishes that have had neither an answer nor a refusal.
    pub(super) fn unsettled(&self) -> Vec<Wish> {
        let log = self.log.lock().unwrap();
        let mut settled: HashMap<(&Id, u64), (bool, &Wish)> = HashMap::new();
        for Exchange { wish, heard, .. } in log.iter().filter(|exchange| !exchange.wish.wrong) {
            settled.entry((&wish.id, wish.amount)).or_insert((false, wish)).0 |= heard.is_definite();
        }
        let mut left: Vec<Wish> = settled
            .into_values()
            .filter(|(settled, _)| !settled)
            .map(|(_, wish)| wish.clone())
            .collect();
        left.sort_by(|a, b| a.id.cmp(&b.id));
        left
    }

    /// Retries until there is a definite answer.
    pub(super) async fn settle(&self, wish: &Wish, rng: &mut Rng, until: Instant) {
        while Instant::now() < until {
            if self
                .ask(wish, rng.usize(..2), Duration::from_secs(10))
                .await
                .is_definite()
            {
                return;
            }
            pause(rng, 100..500).await;
        }
    }
}

async fn pause(rng: &mut Rng, milliseconds: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rng.u64(milliseconds))).await;
}

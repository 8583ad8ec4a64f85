//! A payment provider without idempotency keys, over real sockets: it charges whatever it is told to, keeps a
//! ledger, shows payments late, and misbehaves where it is asked to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A payment.
#[derive(Debug, Clone)]
pub(crate) struct Payment {
    pub(crate) order: String,
    pub(crate) id: String,
    status: &'static str,
}

/// How a question is answered instead of truly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Hang,
    Status(u16),
    Garbage,
    /// An error document with status 200.
    Error200,
}

#[derive(Debug, Default)]
struct State {
    ledger: Vec<Payment>,
    /// For all orders, or for one.
    faults: HashMap<Option<String>, Fault>,
    questions: Vec<(Instant, String)>,
    /// New payments are not shown yet.
    hiding: bool,
}

/// A running provider.
#[derive(Debug, Clone)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Provider {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let provider = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let running = provider.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(running.clone().serve(stream));
            }
        });
        provider
    }

    /// Whether payments are not shown yet: its lag, which ends when the test says so.
    pub(crate) fn hide(&self, hiding: bool) {
        self.state.lock().unwrap().hiding = hiding;
    }

    /// Misbehaves from now on: for one order or for all.
    pub(crate) fn fault(&self, order: Option<&str>, fault: Option<Fault>) {
        let mut state = self.state.lock().unwrap();
        let order = order.map(str::to_owned);
        match fault {
            Some(fault) => state.faults.insert(order, fault),
            None => state.faults.remove(&order),
        };
    }

    /// Books a payment, as if it had been charged by somebody.
    pub(crate) fn book(&self, order: &str, status: &'static str) -> String {
        let mut state = self.state.lock().unwrap();
        let id = format!("pay_{}", state.ledger.len() + 1);
        state.ledger.push(Payment {
            order: order.to_owned(),
            id: id.clone(),
            status,
        });
        id
    }

    /// What was booked for an order.
    pub(crate) fn ledger(&self, order: &str) -> Vec<Payment> {
        let state = self.state.lock().unwrap();
        let of_order = state.ledger.iter().filter(|payment| payment.order == order);
        of_order.cloned().collect()
    }

    /// When which order was asked about.
    pub(crate) fn questions(&self) -> Vec<(Instant, String)> {
        self.state.lock().unwrap().questions.clone()
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let order = target.rsplit(['=', '/']).next().unwrap().to_owned();
        let (status, body) = if method == "POST" {
            let id = self.book(&order, "succeeded");
            (201, format!(r#"{{"id":"{id}"}}"#))
        } else {
            match self.answer(target, &order) {
                Some(answer) => answer,
                None => return std::future::pending().await,
            }
        };
        let length = body.len();
        let reply = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        // The client may have been killed meanwhile.
        let _ = stream.write_all(reply.as_bytes()).await;
        let _ = stream.shutdown().await;
    }

    fn answer(&self, target: &str, order: &str) -> Option<(u16, String)> {
        let mut state = self.state.lock().unwrap();
        state.questions.push((Instant::now(), order.to_owned()));
        let faults = [Some(order.to_owned()), None];
        let fault = faults.iter().find_map(|key| state.faults.get(key));
        match fault {
            Some(Fault::Hang) => return None,
            Some(Fault::Status(status)) => return Some((*status, String::new())),
            Some(Fault::Garbage) => return Some((200, "<?xml \u{1}".to_owned())),
            Some(Fault::Error200) => return Some((200, r#"{"error":"try later"}"#.to_owned())),
            None => {}
        }
        let seen: Vec<String> = state
            .ledger
            .iter()
            .filter(|payment| payment.order == order && !state.hiding)
            .map(|payment| {
                format!(
                    r#"{{"id":"{}","order":"{}","status":"{}","amount":49.90,"currency":"EUR"}}"#,
                    payment.id, payment.order, payment.status
                )
            })
            .collect();
        // By path: one payment or 404. By query: a list.
        if target.contains('?') {
            return Some((200, format!(r#"{{"data":[{}]}}"#, seen.join(","))));
        }
        Some(match seen.as_slice() {
            [] => (404, r#"{"error":"no such payment"}"#.to_owned()),
            [one, ..] => (200, one.clone()),
        })
    }
}

/// The section of a provider of this kind.
pub(crate) fn section(name: &str, address: SocketAddr) -> String {
    format!(
        r#"[providers.{name}]
kind = "http"
url = "http://{address}/v1/payments?merchant_order_id={{order_id}}"
timeout = "1s"
find = "/data"
match = "/order"
status = "/status"
reference = "/id"
amount = "/amount"
currency = "/currency"
lag = "60s"
verdicts = {{ charged = ["succeeded"], authorized = ["held"], pending = ["processing"], not_charged = ["failed"] }}
response = {{ status_code = 201, body = {{ charge_id = "{{/id}}", amount = "{{/amount}}" }} }}
"#
    )
}

/// Charges an order, and gives the provider's answer.
pub(crate) async fn charge(address: SocketAddr, order: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("POST /charge/{order} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

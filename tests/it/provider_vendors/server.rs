//! The server: requests in, answers of one vendor's API out, and every way to misbehave.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::apis::Kind;

/// The secret that every vendor of these tests takes.
pub(super) const SECRET: &str = "sk_vendor_51s3cret";

/// The server's own time, which is not ours: windows are made of its `Date`.
pub(super) const DATE: &str = "Sat, 02 Jan 2021 03:04:05 GMT";

/// The same in seconds since 1970.
pub(super) const NOW: i64 = 1_609_556_645;

/// One payment.
#[derive(Clone)]
pub(super) struct Sale {
    pub(super) id: String,
    pub(super) order: Option<String>,
    /// The vendor's word for its state.
    pub(super) word: String,
    /// How long ago it was created, in seconds.
    pub(super) age: i64,
    /// Given back since.
    pub(super) refunded: bool,
    /// Made at another location than the one that is asked for.
    pub(super) elsewhere: bool,
}

/// A payment of an hour ago.
pub(super) fn sale(id: &str, order: &str, word: &str) -> Sale {
    Sale {
        id: id.to_owned(),
        order: Some(order.to_owned()),
        word: word.to_owned(),
        age: 3600,
        refunded: false,
        elsewhere: false,
    }
}

/// What a request gets instead of an answer.
#[derive(Clone)]
pub(super) enum Fault {
    Answer(u16, &'static str, &'static str),
    /// The connection is closed after the request was read.
    Close,
    /// Nothing, for ever.
    Hang,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) head: String,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap()
    }

    fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub(super) fn path(&self) -> &str {
        self.target().split('?').next().unwrap()
    }

    /// A parameter of the query, decoded.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target().split_once('?')?;
        let decode = |text: &str| {
            let text = percent_encoding::percent_decode_str(text).decode_utf8();
            text.unwrap().into_owned()
        };
        let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
        pairs
            .find(|(given, _)| decode(given) == name)
            .map(|(_, value)| decode(value))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// A running vendor; it ends with the test's runtime.
pub(super) struct Vendor {
    pub(super) kind: Kind,
    pub(super) port: u16,
    state: Arc<Mutex<State>>,
}

/// What the vendor has.
pub(super) struct State {
    pub(super) sales: Vec<Sale>,
    /// How many payments a page has at most.
    pub(super) page: usize,
    /// Whether parameters that narrow the list are overlooked.
    pub(super) ignores_filters: bool,
    seen: Vec<Seen>,
    /// From this request on, counted from 0.
    fault: Option<(usize, Fault)>,
    date: bool,
    pub(super) secret: String,
}

impl Vendor {
    pub(super) async fn start(kind: Kind, sales: Vec<Sale>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            sales,
            page: 100,
            ignores_filters: false,
            seen: Vec::new(),
            fault: None,
            date: true,
            secret: SECRET.to_owned(),
        }));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, kind, Arc::clone(&shared)));
            }
        });
        Self { kind, port, state }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Requests get this, from the nth on, counted from 0 and from now.
    pub(super) fn fault(&self, from: usize, fault: Fault) {
        self.change(|state| state.fault = Some((state.seen.len() + from, fault)));
    }

    /// Pages with fewer payments than were asked for.
    pub(super) fn pages_of(&self, page: usize) {
        self.change(|state| state.page = page);
    }

    pub(super) fn ignore_filters(&self) {
        self.change(|state| state.ignores_filters = true);
    }

    /// Takes this secret from now on, and no other.
    pub(super) fn takes(&self, secret: &str) {
        self.change(|state| secret.clone_into(&mut state.secret));
    }

    pub(super) fn without_date(&self) {
        self.change(|state| state.date = false);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.state.lock().unwrap().seen.clone()
    }
}

async fn request(stream: &mut TcpStream) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let mut seen = Seen {
        head: String::from_utf8(head).unwrap(),
        body: String::new(),
    };
    let length = seen
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    seen.body = String::from_utf8(body).unwrap();
    Some(seen)
}

async fn serve(mut stream: TcpStream, kind: Kind, state: Arc<Mutex<State>>) {
    let Some(seen) = request(&mut stream).await else {
        return;
    };
    let (fault, date) = {
        let mut state = state.lock().unwrap();
        let turn = state.seen.len();
        state.seen.push(seen.clone());
        let fault = state.fault.clone().filter(|(from, _)| turn >= *from);
        (fault.map(|(_, fault)| fault), state.date)
    };
    let (status, headers, body) = match fault {
        Some(Fault::Close) => return,
        Some(Fault::Hang) => return std::future::pending().await,
        Some(Fault::Answer(status, headers, body)) => (status, headers, body.to_owned()),
        None => {
            let (status, body): (u16, Value) = kind.answer(&seen, &state.lock().unwrap());
            (status, "content-type: application/json\r\n", body.to_string())
        }
    };
    let date = if date {
        format!("date: {DATE}\r\n")
    } else {
        String::new()
    };
    let answer = format!(
        "HTTP/1.1 {status} x\r\n{headers}{date}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // A client that has seen enough may be gone.
    let _ = stream.write_all(answer.as_bytes()).await;
}

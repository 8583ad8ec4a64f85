//! A small Stripe of our own for what the other servers lack: the search, with its lag and its broad matches, after
//! the vendor's pages "Search", "Search for payment intents" and "List all payment intents"; and
//! every way to get no answer.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The server's own time, which is not ours: windows are made of its `Date`.
const DATE: &str = "Sat, 02 Jan 2021 03:04:05 GMT";

/// The same in seconds since 1970.
const NOW: i64 = 1_609_556_645;

/// One payment intent.
#[derive(Clone)]
pub(super) struct Intent {
    pub(super) id: String,
    /// `metadata.order_id`.
    pub(super) order: String,
    pub(super) status: &'static str,
    pub(super) received: u64,
    /// How long ago it was created, in seconds.
    pub(super) age: i64,
    /// What the search shows as its status; `None` while it does not show it at all.
    pub(super) indexed: Option<&'static str>,
    /// The order that it was of when the search last looked at it, where that is another.
    pub(super) indexed_order: Option<&'static str>,
}

/// An intent of an hour ago that the search shows as it is.
pub(super) fn intent(id: &str, order: &str, status: &'static str) -> Intent {
    Intent {
        id: id.to_owned(),
        order: order.to_owned(),
        status,
        received: if status == "succeeded" { 4990 } else { 0 },
        age: 3600,
        indexed: Some(status),
        indexed_order: None,
    }
}

/// What a request gets instead of an answer.
#[derive(Clone)]
pub(super) enum Fault {
    Answer(u16, &'static str),
    /// The connection is closed after the request was read.
    Close,
    /// Nothing, for ever.
    Hang,
    /// The answer as it is.
    None,
}

/// A running server; it ends with the test's runtime.
pub(super) struct Vendor {
    pub(super) port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    intents: Vec<Intent>,
    /// Paths that begin like this (queries left out) get this.
    faults: Vec<(String, Fault)>,
    heads: Vec<String>,
    page: usize,
    secret: String,
}

impl Vendor {
    pub(super) async fn start(intents: Vec<Intent>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            intents,
            page: 100,
            secret: super::api::SECRET.to_owned(),
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { port, state }
    }

    /// Requests of paths that begin like this get no answer, or this one.
    pub(super) fn fault(&self, path: &str, fault: Fault) {
        self.state
            .lock()
            .unwrap()
            .faults
            .insert(0, (path.to_owned(), fault));
    }

    /// Requests of paths that begin like this get their answer, whatever shorter paths get.
    pub(super) fn no_fault(&self, path: &str) {
        self.fault(path, Fault::None);
    }

    /// Takes this key from now on, and no other.
    pub(super) fn takes(&self, secret: &str) {
        secret.clone_into(&mut self.state.lock().unwrap().secret);
    }

    /// Pages with fewer payments than were asked for.
    pub(super) fn pages_of(&self, page: usize) {
        self.state.lock().unwrap().page = page;
    }

    /// The heads of the requests so far.
    pub(super) fn heads(&self) -> Vec<String> {
        self.state.lock().unwrap().heads.clone()
    }

    /// The paths of the requests so far, without queries.
    pub(super) fn paths(&self) -> Vec<String> {
        self.heads().iter().map(|head| target(head).0).collect()
    }

    /// What was searched for.
    pub(super) fn searches(&self) -> Vec<String> {
        let heads = self.heads();
        let queries = heads.iter().map(|head| target(head).1);
        queries
            .flat_map(|pairs| pairs.into_iter().filter(|(name, _)| name == "query"))
            .map(|(_, value)| value)
            .collect()
    }
}

/// Path and query of a request, decoded.
fn target(head: &str) -> (String, Vec<(String, String)>) {
    let target = head.split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let decode = |text: &str| {
        let text = percent_encoding::percent_decode_str(text).decode_utf8();
        text.unwrap().into_owned()
    };
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (decode(name), decode(value)));
    (path.to_owned(), pairs.collect())
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let fault = {
        let mut state = state.lock().unwrap();
        state.heads.push(head.clone());
        let path = target(&head).0;
        let fault = state
            .faults
            .iter()
            .find(|(begin, _)| path.starts_with(begin.as_str()));
        fault.map(|(_, fault)| fault.clone())
    };
    let (status, body) = match fault {
        Some(Fault::Close) => return,
        Some(Fault::Hang) => return std::future::pending().await,
        Some(Fault::Answer(status, body)) => (status, body.to_owned()),
        None | Some(Fault::None) => {
            let (status, body) = answer(&head, &state.lock().unwrap());
            (status, body.to_string())
        }
    };
    let answer = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ndate: {DATE}\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    // A client that has seen enough may be gone.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// An error object, as in "Errors" of the reference.
fn error(status: u16, code: &str, message: &str) -> (u16, Value) {
    let error = json!({"type": "invalid_request_error", "code": code, "message": message});
    (status, json!({ "error": error }))
}

fn answer(head: &str, state: &State) -> (u16, Value) {
    let (path, query) = target(head);
    if !head.contains(&format!("authorization: Bearer {}\r\n", state.secret)) {
        return error(401, "api_key_invalid", "Invalid API Key provided");
    }
    match path.strip_prefix("/v1/payment_intents") {
        Some("") => list(&query, state),
        Some("/search") => search(&query, state),
        Some(id) => match state.intents.iter().find(|intent| intent.id == id[1..]) {
            Some(intent) => (200, describe(intent, intent.status)),
            None => error(404, "resource_missing", "No such payment_intent"),
        },
        None => error(404, "", "Unrecognized request URL"),
    }
}

fn describe(intent: &Intent, status: &str) -> Value {
    json!({
        "id": intent.id, "object": "payment_intent", "amount": 4990, "amount_received": intent.received,
        "currency": "eur", "created": created(intent), "livemode": false, "status": status,
        "metadata": {"order_id": intent.order},
    })
}

fn created(intent: &Intent) -> i64 {
    NOW - intent.age
}

fn list(query: &[(String, String)], state: &State) -> (u16, Value) {
    let value = |name: &str| {
        query
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    };
    let bound = |name: &str, absent: i64| value(name).map_or(absent, |value| value.parse().unwrap());
    let (from, to) = (bound("created[gte]", 0), bound("created[lte]", i64::MAX));
    let mut intents: Vec<_> = state
        .intents
        .iter()
        .filter(|intent| (from..=to).contains(&created(intent)))
        .collect();
    intents.sort_by_key(|intent| intent.age);
    let begin = match value("starting_after") {
        None => 0,
        Some(id) => match intents.iter().position(|intent| intent.id == id) {
            Some(position) => position + 1,
            None => return error(400, "resource_missing", "No such payment_intent"),
        },
    };
    let limit: usize = value("limit").unwrap_or("10").parse().unwrap();
    assert!((1..=100).contains(&limit), "{limit}");
    let page: Vec<_> = intents[begin..].iter().take(limit.min(state.page)).collect();
    let data: Vec<_> = page
        .iter()
        .map(|intent| describe(intent, intent.status))
        .collect();
    let has_more = begin + page.len() < intents.len();
    (
        200,
        json!({"object": "list", "url": "/v1/payment_intents", "has_more": has_more, "data": data}),
    )
}

/// One clause on the order id, as the page describes the language: the value in quotes, quotes in it escaped with a
/// backslash; "exact match" of a string is one that holds the words, in any case.
fn search(query: &[(String, String)], state: &State) -> (u16, Value) {
    let text = query
        .iter()
        .find(|(name, _)| name == "query")
        .map(|(_, value)| value.as_str());
    let value = text
        .and_then(|text| text.strip_prefix("metadata[\"order_id\"]:\""))
        .and_then(quoted);
    let Some(value) = value else {
        return error(400, "", "We were unable to parse your search query");
    };
    let hits = state.intents.iter().filter_map(|intent| {
        let status = intent.indexed?;
        let mut shown = intent.clone();
        if let Some(order) = intent.indexed_order {
            order.clone_into(&mut shown.order);
        }
        let is_hit = shown.order.to_lowercase().contains(&value.to_lowercase());
        is_hit.then(|| describe(&shown, status))
    });
    let data: Vec<_> = hits.collect();
    (
        200,
        json!({"object": "search_result", "url": "/v1/payment_intents/search", "has_more": false,
               "next_page": null, "data": data}),
    )
}

/// The rest of a quoted value, which has to end the query.
fn quoted(rest: &str) -> Option<String> {
    let mut value = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '\\' => value.push(chars.next()?),
            '"' => return chars.as_str().is_empty().then_some(value),
            other => value.push(other),
        }
    }
}

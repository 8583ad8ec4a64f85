//! The handler that this project is there to replace: look whether the key is known, charge, then write. It is what
//! the checker has to catch.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio_postgres::Client;

use super::history::Id;

struct Naive {
    database: Client,
    provider: String,
    http: reqwest::Client,
}

/// A service in this process.
pub(super) async fn start(database: Client, provider: String) -> SocketAddr {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let naive = Naive {
        database,
        provider,
        http,
    };
    let router = Router::new()
        .route("/payments", post(pay))
        .with_state(Arc::new(naive));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn pay(State(naive): State<Arc<Naive>>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (client, key) = (header("x-client"), header("idempotency-key"));
    // Check ...
    let known = "select status_code, response::text from idempotency where client_id = $1 and key = $2";
    if let Some(row) = naive.database.query_opt(known, &[&client, &key]).await.unwrap() {
        return answer(u16::try_from(row.get::<_, i32>(0)).unwrap(), row.get(1));
    }
    // ... act ...
    let mut order: serde_json::Value = serde_json::from_slice(&body).unwrap();
    order["order_id"] = Id::new(&client, &key).order().into();
    let sent = naive
        .http
        .post(format!("{}/v1/charges", naive.provider))
        .header("idempotency-key", uuid::Uuid::new_v4().to_string())
        .json(&order)
        .timeout(std::time::Duration::from_secs(1))
        .send()
        .await;
    let (status, text) = match sent {
        Ok(charged) if charged.status() == StatusCode::CREATED => {
            let charge: serde_json::Value = charged.json().await.unwrap();
            let answer = serde_json::json!({ "charge_id": charge["id"], "amount": charge["amount"] });
            (201, answer.to_string())
        }
        Ok(declined) if declined.status() == StatusCode::PAYMENT_REQUIRED => {
            (402, r#"{"error":"declined"}"#.to_owned())
        }
        _ => return answer(502, "{}".to_owned()),
    };
    // ... then write.
    let write = "insert into idempotency (client_id, key, fingerprint, status, status_code, response)
                 values ($1, $2, '', 'done', $3, $4::text::json) on conflict do nothing";
    let written = naive
        .database
        .execute(write, &[&client, &key, &i32::from(status), &text])
        .await;
    written.unwrap();
    answer(status, text)
}

fn answer(status: u16, text: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("content-type", "application/json")], text).into_response()
}

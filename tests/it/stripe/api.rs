//! What a service does with Stripe: real requests over HTTP, without any code of the adapter.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The key that every server of these tests takes.
pub(super) const SECRET: &str = "sk_test_idemctl51";

/// Somebody who calls Stripe's API.
#[derive(Clone, Copy)]
pub(super) struct Api {
    pub(super) port: u16,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: serde_json::Value,
}

impl Answer {
    /// The body of an answer that is no error.
    #[track_caller]
    pub(super) fn ok(self) -> serde_json::Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.body
    }
}

impl Api {
    /// A GET.
    pub(super) async fn get(self, path: &str) -> Answer {
        self.send("GET", path, "", "").await
    }

    /// A POST of a form, with further header lines.
    pub(super) async fn post(self, path: &str, form: &[(&str, &str)], headers: &str) -> Answer {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        let pairs: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        self.send("POST", path, headers, &pairs.join("&")).await
    }

    async fn send(self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {SECRET}\r\nconnection: close\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: serde_json::from_str(body).unwrap(),
        }
    }
}

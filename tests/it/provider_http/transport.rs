//! Trouble on the way: what may pass is asked again, and everything ends in time.

use super::*;

#[tokio::test]
async fn what_may_pass_is_asked_again() {
    for trouble in [
        Reply::status(500),
        Reply::status(503),
        Reply::status(429),
        Reply::Reset,
        Reply::Raw(vec![]),
    ] {
        let server = Server::start(vec![trouble.clone(), trouble, charged()]).await;
        assert_eq!(ask(&adapter(&server, "")).await.verdict, Verdict::Charged);
        assert_eq!(server.requests().len(), 3);
    }
    let server = Server::start(vec![Reply::status(500)]).await;
    assert!(reason(&ask(&adapter(&server, "")).await).contains("HTTP 500"));
    assert_eq!(server.requests().len(), 5, "bounded");
    for settled in [
        Reply::json(401, ""),
        Reply::json(302, ""),
        Reply::json(200, "x"),
        Reply::json(422, ""),
    ] {
        let server = Server::start(vec![settled]).await;
        reason(&ask(&adapter(&server, "")).await);
        assert_eq!(server.requests().len(), 1, "asking again would not help");
    }
}

#[tokio::test]
async fn the_providers_wish_to_wait_is_kept_within_the_deadline() {
    let busy = |status, after: &str, date: &str| {
        Reply::Http(
            status,
            vec![("retry-after", after.to_owned()), ("date", date.to_owned())],
            vec![],
        )
    };
    let (now, then) = ("Sun, 29 Nov 2026 12:00:00 GMT", "Sun, 29 Nov 2026 12:00:01 GMT");
    for reply in [busy(429, "1", now), busy(503, then, now)] {
        let server = Server::start(vec![reply, charged()]).await;
        let begun = Instant::now();
        assert_eq!(ask(&adapter(&server, "")).await.verdict, Verdict::Charged);
        assert!(
            begun.elapsed() >= Duration::from_secs(1),
            "waited {:?}",
            begun.elapsed()
        );
    }
    let server = Server::start(vec![busy(429, "3600", now)]).await;
    let begun = Instant::now();
    let status = ask(&adapter(&server, "")).await;
    assert!(reason(&status).contains("HTTP 429"), "{status:?}");
    assert_eq!(status.not_before, Some(Duration::from_hours(1)));
    assert_eq!(server.requests().len(), 1);
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "does not wait for nothing"
    );
}

#[tokio::test]
async fn slow_answers_count_and_hanging_ones_end() {
    let slow = Reply::Slow(Duration::from_millis(300), Box::new(charged()));
    assert_eq!(one(slow, "").await.verdict, Verdict::Charged);
    let head_only = b"HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n{\"data\":".to_vec();
    for (reply, expected) in [
        (Reply::Hang, "no answer within 400ms"),
        (Reply::Stall(b"HTTP/1.1 2".to_vec()), "no answer within 400ms"),
        (Reply::Stall(head_only), "no answer within 400ms"),
    ] {
        let begun = Instant::now();
        let status = one(reply, "timeout = \"400ms\"").await;
        assert!(reason(&status).contains(expected), "{status:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    let server = Server::start(vec![Reply::status(500), Reply::Hang]).await;
    let status = ask(&adapter(&server, "timeout = \"1s\"")).await;
    assert!(
        reason(&status).contains("no answer within 1s; before that: the provider answered HTTP 500"),
        "{status:?}"
    );
}

#[tokio::test]
async fn nobody_there() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let status = ask(&adapter_at(&format!("http://{free}/{{order_id}}?key=s3cret"), "")).await;
    assert!(
        reason(&status).contains("cannot be reached") && reason(&status).contains("refused"),
        "{status:?}"
    );
    assert!(!format!("{status:?}").contains("s3cret"), "{status:?}");
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Server::start(vec![charged()]).await;
    let location = vec![("location", format!("http://{}/", elsewhere.address))];
    for code in [301, 302, 303, 307, 308] {
        let status = one(Reply::Http(code, location.clone(), vec![]), "").await;
        assert!(reason(&status).contains("redirect"), "{status:?}");
    }
    assert_eq!(elsewhere.requests(), Vec::<String>::new());
}

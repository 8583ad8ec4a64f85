//! Lists: every page is read, within the window of the attempts, which the vendor's clock makes.

use super::apis::Kind;
use super::server::{NOW, Sale, Vendor, sale};
use super::*;

/// Payments of other orders at these ages.
fn others(kind: Kind, ages: impl IntoIterator<Item = i64>) -> Vec<Sale> {
    let ages = ages.into_iter().enumerate();
    ages.map(|(i, age)| Sale {
        age,
        ..sale(
            &format!("other{i}"),
            &format!("other-{i}"),
            kind.word(Verdict::Charged),
        )
    })
    .collect()
}

#[tokio::test]
async fn the_match_is_on_the_last_of_several_pages() {
    for kind in Kind::ALL {
        let mut sales = if kind.is_window() {
            others(kind, 3000..3006)
        } else {
            // Of this order, since no others come back.
            let void = |i: i64| Sale {
                age: 3000 + i,
                ..sale(&format!("v{i}"), "order-1", kind.word(Verdict::NotCharged))
            };
            (0..6).map(void).collect()
        };
        sales.push(sale("p1", "order-1", kind.word(Verdict::Charged)));
        let vendor = Vendor::start(kind, sales).await;
        vendor.pages_of(2);
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert_eq!(
            (status.verdict, status.reference.as_deref()),
            (Verdict::Charged, Some("p1")),
            "{kind:?}: {status:?}"
        );
        assert!(status.evidence.contains("on 4 pages"), "{}", status.evidence);
        assert_eq!(vendor.seen().len(), 4 + usize::from(kind.is_window()));
    }
}

#[tokio::test]
async fn a_list_that_breaks_off_proves_nothing() {
    for kind in Kind::ALL {
        let mut sales = others(kind, 3000..3006);
        if !kind.is_window() {
            for sale in &mut sales {
                sale.order = Some("order-1".to_owned());
                sale.word = kind.word(Verdict::NotCharged).to_owned();
            }
        }
        sales.push(sale("p1", "order-1", kind.word(Verdict::Charged)));
        let vendor = Vendor::start(kind, sales).await;
        vendor.pages_of(2);
        let adapter = adapter(&vendor, "timeout = \"900ms\"");
        // The first page comes, the third does not.
        for fault in [
            server::Fault::Answer(500, "", ""),
            server::Fault::Answer(400, "", "{}"),
            server::Fault::Answer(200, "", "["),
            server::Fault::Close,
            server::Fault::Hang,
        ] {
            vendor.fault(3, fault);
            let status = ask(&adapter, "order-1").await;
            let expected = if kind.is_window() {
                "no payment was found, which proves nothing"
            } else {
                "an attempt failed, but a later one may have been missed"
            };
            assert!(reason(&status).contains(expected), "{kind:?}: {status:?}");
        }
    }
}

#[tokio::test]
async fn a_list_that_never_ends_proves_nothing() {
    for kind in [Kind::Yookassa, Kind::Square, Kind::Mollie] {
        let vendor = Vendor::start(kind, others(kind, 2000..2150)).await;
        vendor.pages_of(1);
        let status = ask(&adapter(&vendor, "timeout = \"30s\""), "order-1").await;
        assert!(reason(&status).contains("more than 100 pages"), "{status:?}");
        // Without a window, only the newest are read, which find but prove nothing.
        let status = adapter(&vendor, "").status(&StatusQuery::new("order-1")).await;
        assert!(reason(&checked(status)).contains("more than 5 pages"));
    }
}

#[tokio::test]
async fn a_vendor_that_overlooks_the_order_id_proves_nothing() {
    for kind in [Kind::Checkout, Kind::Braintree] {
        let vendor = Vendor::start(kind, others(kind, [3600])).await;
        vendor.ignore_filters();
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert!(
            reason(&status).contains("of other orders came back"),
            "{status:?}"
        );
        // One that does not tell upper from lower case may have written ours like that.
        let vendor = Vendor::start(kind, vec![sale("p1", "ORDER-1", kind.word(Verdict::Charged))]).await;
        vendor.ignore_filters();
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert!(reason(&status).contains("by case or outer blanks"), "{status:?}");
    }
    for kind in [Kind::Yookassa, Kind::Square, Kind::Mollie] {
        let vendor = Vendor::start(kind, others(kind, [3600, 90_000])).await;
        vendor.ignore_filters();
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert_eq!(status.verdict, Verdict::NotCharged, "{kind:?}: {status:?}");
    }
}

#[tokio::test]
async fn the_window_is_made_of_the_vendors_clock() {
    for (kind, from, to) in [
        (Kind::Yookassa, "created_at.gte", "created_at.l"),
        (Kind::Square, "begin_time", "end_time"),
    ] {
        // Of the time of the attempts by the vendor's clock, which is years ahead of ours.
        let vendor = Vendor::start(kind, vec![sale("p1", "order-1", kind.word(Verdict::Charged))]).await;
        let adapter = adapter(&vendor, "");
        assert_eq!(ask(&adapter, "order-1").await.verdict, Verdict::Charged);
        // Hours after the last attempt, by a holder that stood still.
        let status = checked(adapter.status(&query("order-1", 36_000, 28_800)).await);
        assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
        let seen = vendor.seen().pop().unwrap();
        let bound = |name: &str| {
            let text = seen.parameter(name).unwrap();
            chrono::DateTime::parse_from_rfc3339(&text).unwrap().timestamp()
        };
        assert_eq!(bound(from), NOW - 36_000 - 3600);
        assert!(!seen.head.contains(to), "{}", seen.head);
        assert!(
            status.evidence.contains("created since 2021-01-01T16:04:05Z"),
            "{}",
            status.evidence
        );
    }
    for kind in [Kind::Yookassa, Kind::Square, Kind::Mollie] {
        let vendor = Vendor::start(kind, vec![sale("p1", "order-1", kind.word(Verdict::Charged))]).await;
        vendor.without_date();
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert!(reason(&status).contains("Date"), "{status:?}");
        assert_eq!(vendor.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_window_without_any_order_id_proves_nothing() {
    for kind in [Kind::Yookassa, Kind::Square, Kind::Mollie] {
        let mut sales = others(kind, [3000, 3100]);
        let vendor = Vendor::start(kind, sales.clone()).await;
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert_eq!(status.verdict, Verdict::NotCharged, "{kind:?}: {status:?}");
        // The place is a wrong one, or the service does not send the id.
        let status = ask(&adapter(&vendor, "match = \"/nowhere\""), "order-1").await;
        assert!(
            reason(&status)
                .contains("none of the 2 payments of the window carries an order id at \"/nowhere\""),
            "{status:?}"
        );
        for sale in &mut sales {
            sale.order = None;
        }
        let vendor = Vendor::start(kind, sales).await;
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert!(reason(&status).contains("carries an order id"), "{status:?}");
    }
}

#[tokio::test]
async fn a_key_of_test_mode_proves_nothing_unless_it_is_meant() {
    for kind in [Kind::Yookassa, Kind::Mollie] {
        let void = kind.word(Verdict::NotCharged);
        let vendor = Vendor::start(
            kind,
            vec![
                sale("p1", "order-1", void),
                sale("p2", "order-2", kind.word(Verdict::Charged)),
            ],
        )
        .await;
        vendor.takes("test_51s3cret");
        for order in ["order-1", "nobody"] {
            let status = ask(&adapter(&vendor, "secret = \"test_51s3cret\""), order).await;
            assert!(reason(&status).contains("test_mode = true"), "{status:?}");
            let meant = adapter(&vendor, "secret = \"test_51s3cret\"\ntest_mode = true");
            assert_eq!(ask(&meant, order).await.verdict, Verdict::NotCharged, "{kind:?}");
        }
        let status = ask(&adapter(&vendor, "secret = \"test_51s3cret\""), "order-2").await;
        assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
    }
}

#[tokio::test]
async fn mollie_is_read_back_to_the_first_attempt() {
    let kind = Kind::Mollie;
    let vendor = Vendor::start(kind, others(kind, (0..40).map(|i| i * 300))).await;
    vendor.pages_of(5);
    let status = ask(&adapter(&vendor, ""), "order-1").await;
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
    // 7200 s is the bound: the fifth page ends there, and the sixth, of 7500 to 8700 s, is past it.
    assert_eq!(vendor.seen().len(), 1 + 6, "{:?}", vendor.seen());
    assert!(vendor.seen()[3].parameter("from").is_some());
    // A payment at the very bound.
    let at = |age| Sale {
        age,
        ..sale("p1", "order-1", "paid")
    };
    for (age, verdict) in [
        (7200, Verdict::Charged),
        (7201, Verdict::Charged),
        (90_000, Verdict::NotCharged),
    ] {
        let mut sales = others(kind, [7100, 7300]);
        sales.push(at(age));
        let vendor = Vendor::start(kind, sales).await;
        vendor.pages_of(2);
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert_eq!(status.verdict, verdict, "{age}: {status:?}");
    }
}

#[tokio::test]
async fn square_shows_one_location() {
    let elsewhere = Sale {
        elsewhere: true,
        ..sale("p1", "order-1", "COMPLETED")
    };
    let vendor = Vendor::start(Kind::Square, vec![elsewhere]).await;
    ask(&adapter(&vendor, ""), "order-1").await;
    assert!(
        vendor
            .seen()
            .iter()
            .all(|seen| seen.parameter("location_id").as_deref() == Some("L1"))
    );
    let status = ask(&adapter(&vendor, "location = \"L2\""), "order-1").await;
    assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
}

#[tokio::test]
async fn a_list_that_moves_shows_no_payment_twice() {
    // Checkout.com pages by number: what comes in front shifts the rest to the next page.
    let kind = Kind::Checkout;
    let vendor = Vendor::start(
        kind,
        vec![
            sale("p1", "order-1", "Captured"),
            sale("p1", "order-1", "Captured"),
        ],
    )
    .await;
    vendor.pages_of(1);
    let status = ask(&adapter(&vendor, ""), "order-1").await;
    assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
}

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
        // One that does not tell upper from lower case is exact enough, and the other order is not ours.
        let vendor = Vendor::start(kind, vec![sale("p1", "ORDER-1", kind.word(Verdict::Charged))]).await;
        vendor.ignore_filters();
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
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
        (Kind::Yookassa, "created_at.gte", "created_at.lte"),
        (Kind::Square, "begin_time", "end_time"),
    ] {
        // Of the time of the attempts by the vendor's clock, which is years ahead of ours.
        let vendor = Vendor::start(kind, vec![sale("p1", "order-1", kind.word(Verdict::Charged))]).await;
        let adapter = adapter(&vendor, "");
        assert_eq!(ask(&adapter, "order-1").await.verdict, Verdict::Charged);
        let status = checked(adapter.status(&query("order-1", 36_000, 28_800)).await);
        assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
        let seen = vendor.seen().pop().unwrap();
        let bound = |name: &str| {
            let text = seen.parameter(name).unwrap();
            chrono::DateTime::parse_from_rfc3339(&text).unwrap().timestamp()
        };
        assert_eq!(bound(from), NOW - 36_000 - 300);
        assert_eq!(bound(to), NOW - 28_800 + 3600 + 120);
        assert!(
            status
                .evidence
                .contains("created from 2031-01-01T16:59:05Z to 2031-01-01T20:06:05Z"),
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
async fn mollie_is_read_back_to_the_first_attempt() {
    let kind = Kind::Mollie;
    let vendor = Vendor::start(kind, others(kind, (0..40).map(|i| i * 300))).await;
    vendor.pages_of(5);
    let status = ask(&adapter(&vendor, ""), "order-1").await;
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
    // 3900 s is the bound, which the third page reaches: 0 to 1200 s, 1500 to 2700 s, 3000 to 4200 s.
    assert_eq!(vendor.seen().len(), 1 + 3, "{:?}", vendor.seen());
    assert!(vendor.seen()[3].parameter("from").is_some());
    // A payment at the very bound.
    let at = |age| Sale {
        age,
        ..sale("p1", "order-1", "paid")
    };
    for (age, verdict) in [
        (3900, Verdict::Charged),
        (3901, Verdict::Charged),
        (90_000, Verdict::NotCharged),
    ] {
        let mut sales = others(kind, [3800, 4000]);
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

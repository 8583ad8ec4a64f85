//! Order ids that try to be something else.

use super::apis::Kind;
use super::server::{Vendor, sale};
use super::*;

#[tokio::test]
async fn no_order_id_breaks_out_of_its_place() {
    for kind in Kind::ALL {
        let charged = kind.word(Verdict::Charged);
        let authorized = kind.word(Verdict::Authorized);
        for order in [
            r#"a&b?c/d#e%f"g{h}i\j"#,
            "x&reference=victim",
            "x\"}}, \"after\": \"cursor-0\"",
            r#"x\",\"is\":\"victim"#,
            "../payments?x=1",
            "%2e%2e%2f",
            "a+b c;d",
            "null",
            "*",
            "{order_id}",
            "é\u{1f600}\u{202e}",
            "\u{212a}elvin",
        ] {
            let victim = sale("p1", "victim", charged);
            let vendor = Vendor::start(kind, vec![victim.clone()]).await;
            let status = ask(&adapter(&vendor, ""), order).await;
            assert_eq!(
                status.verdict,
                Verdict::NotCharged,
                "{kind:?} {order}: {status:?}"
            );
            let vendor = Vendor::start(kind, vec![victim, sale("p2", order, authorized)]).await;
            let status = ask(&adapter(&vendor, ""), order).await;
            assert_eq!(
                (status.verdict, status.reference.as_deref()),
                (Verdict::Authorized, Some("p2")),
                "{kind:?} {order}: {status:?}"
            );
        }
    }
}

#[tokio::test]
async fn similar_orders_are_not_ours() {
    for kind in Kind::ALL {
        let charged = kind.word(Verdict::Charged);
        let sales = ["order-10", "order-11", "order"].iter().enumerate();
        let mut sales: Vec<_> = sales
            .map(|(i, order)| sale(&format!("p{i}"), order, charged))
            .collect();
        let vendor = Vendor::start(kind, sales.clone()).await;
        let adapter = adapter(&vendor, "");
        assert_eq!(ask(&adapter, "order-1").await.verdict, Verdict::NotCharged);
        assert_eq!(ask(&adapter, "order-10").await.reference.as_deref(), Some("p0"));
        if !kind.is_window() {
            continue;
        }
        // What differs by case or blanks may be ours, rewritten on the way: neither a match nor a miss.
        for other in ["ORDER-1", "order-1 ", " order-1"] {
            sales.push(sale("p9", other, charged));
            let vendor = Vendor::start(kind, sales.clone()).await;
            let status = ask(&super::adapter(&vendor, ""), "order-1").await;
            assert!(reason(&status).contains("by case or outer blanks"), "{status:?}");
            sales.pop();
        }
    }
}

#[tokio::test]
async fn an_order_id_that_no_payment_can_carry_is_unknown() {
    for (kind, limit) in [(Kind::Square, 40), (Kind::Checkout, 80)] {
        let vendor = Vendor::start(kind, vec![]).await;
        let adapter = adapter(&vendor, "");
        let status = ask(&adapter, &"é".repeat(limit)).await;
        assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
        let asked = vendor.seen().len();
        let status = ask(&adapter, &"é".repeat(limit + 1)).await;
        assert!(
            reason(&status).contains(&format!("{limit} characters")),
            "{status:?}"
        );
        assert_eq!(vendor.seen().len(), asked);
    }
    for kind in Kind::ALL {
        let vendor = Vendor::start(kind, vec![]).await;
        for order in ["", "a\0b", &"x".repeat(300)] {
            let status = ask(&adapter(&vendor, ""), order).await;
            reason(&status);
        }
        assert_eq!(vendor.seen().len(), 0);
    }
}

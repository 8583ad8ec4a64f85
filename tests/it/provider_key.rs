//! The provider's key against an independent computation.

use idemctl::key::KeyId;
use idemctl::provider_key::{KeyScheme, derive};

#[derive(serde::Deserialize)]
struct Vector {
    client_id: String,
    key: String,
    operation: Option<String>,
    provider_key: String,
}

#[test]
fn golden_vectors_are_what_python_computes() {
    let kept = include_str!("vectors/provider_keys.jsonl");
    assert_eq!(kept, crate::fingerprint::python("provider_keys", ""));
    let mut seen = std::collections::HashSet::new();
    for line in kept.lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        let id = KeyId::new(vector.client_id, vector.key).unwrap();
        let operation = vector.operation.as_deref();
        assert_eq!(derive(&id, operation), vector.provider_key);
        assert_eq!(
            KeyScheme::Derived.provider_key(&id, operation, 36).unwrap(),
            vector.provider_key
        );
        assert!(KeyScheme::Derived.provider_key(&id, operation, 35).is_err());
        assert!(seen.insert(vector.provider_key), "two operations with one key");
    }
    assert_eq!(seen.len(), 9);
}

//! Which keys this process has met lately: a guess about which statement to send first, never a fact.
//!
//! Nearly every request brings a new key, and its claim is one INSERT. A repeat of a key that this process knows is
//! better looked at first. A wrong guess costs one more round trip and changes no outcome.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::KeyId;

/// Keys that are remembered: 128 kB.
const SLOTS: usize = 16 * 1024;

/// Hashes of keys, each in the one slot that it may have: whoever comes later replaces who was there.
pub(super) struct Known {
    slots: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Known")
    }
}

impl Default for Known {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }
}

impl Known {
    pub(super) fn has(&self, id: &KeyId) -> bool {
        let hash = self.hasher.hash_one(id);
        self.slot(hash).load(Ordering::Relaxed) == hash
    }

    pub(super) fn note(&self, id: &KeyId) {
        let hash = self.hasher.hash_one(id);
        self.slot(hash).store(hash, Ordering::Relaxed);
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        // The low bits choose; the remainder is below SLOTS, so it fits and is in range.
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
        let index = hash as usize % SLOTS;
        &self.slots[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_until_others_take_its_place() {
        let known = Known::default();
        let id = |n: usize| KeyId::new("shop-1", format!("order-{n}")).unwrap();
        assert!(!known.has(&id(1)));
        known.note(&id(1));
        assert!(known.has(&id(1)));
        assert!(!known.has(&KeyId::new("shop-2", "order-1").unwrap()));
        for n in 2..20 * SLOTS {
            known.note(&id(n));
        }
        assert!(!known.has(&id(1)), "memory is bounded");
        assert!(known.has(&id(20 * SLOTS - 1)));
    }
}

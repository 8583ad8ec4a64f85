//! How fast a purge goes: the size of its batches.

/// The smallest batch: a slice of this many rows that stays locked is stepped over.
const SMALLEST_BATCH: u32 = 16;

/// How many rows a batch takes: halved on trouble, doubled again after a quiet stretch.
pub(super) struct Pace {
    most: u32,
    pub(super) now: u32,
    /// Not halved below this. Doubled after each slice that was stepped over, so that a long locked stretch is
    /// crossed in few steps.
    floor: u32,
    /// Batches without trouble still to come before the size is doubled.
    calm: u32,
    pub(super) timeouts: u32,
}

impl Pace {
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            now: most,
            floor: most.min(SMALLEST_BATCH),
            calm: 0,
            timeouts: 0,
        }
    }

    pub(super) fn success(&mut self) {
        self.floor = self.most.min(SMALLEST_BATCH);
        self.timeouts = 0;
        self.calm = self.calm.saturating_sub(1);
        if self.calm == 0 {
            self.now = self.now.saturating_mul(2).min(self.most);
        }
    }

    /// Takes a smaller batch; `false` when it is the smallest already.
    pub(super) fn shrink(&mut self, calm: u32) -> bool {
        self.shrink_to(self.floor, calm)
    }

    pub(super) fn shrink_to(&mut self, floor: u32, calm: u32) -> bool {
        self.calm = calm;
        if self.now <= floor {
            return false;
        }
        self.now = (self.now / 2).max(floor);
        true
    }

    pub(super) fn stepped_over(&mut self) {
        self.floor = self.floor.saturating_mul(2).min(self.most);
        self.now = self.floor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_halves_the_batch_and_quiet_brings_it_back() {
        let mut pace = Pace::new(5_000);
        while pace.shrink(3) {}
        assert_eq!(pace.now, SMALLEST_BATCH);
        pace.stepped_over();
        assert_eq!(
            (pace.now, pace.shrink(3)),
            (32, false),
            "a locked stretch is crossed in growing steps"
        );
        for _ in 0..20 {
            pace.success();
        }
        assert_eq!((pace.now, pace.floor), (5_000, SMALLEST_BATCH));
    }

    #[test]
    fn a_small_batch_is_its_own_smallest() {
        let mut pace = Pace::new(3);
        assert!(!pace.shrink(3));
        pace.stepped_over();
        assert_eq!(pace.now, 3);
    }
}

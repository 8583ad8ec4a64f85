//! Plain text tables, and the statistics in them.

use std::time::Duration;

use tabled::builder::Builder;
use tabled::settings::Style;

/// A table that is printed when it is complete.
pub(crate) struct Table(Builder);

impl Table {
    pub(crate) fn new<const N: usize>(title: &str, head: [&str; N]) -> Self {
        println!("\n{title}\n");
        let mut builder = Builder::default();
        builder.push_record(head);
        Self(builder)
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push_record(cells);
    }

    pub(crate) fn print(self) {
        println!("{}", self.0.build().with(Style::markdown()));
    }
}

/// The smallest sample with at least this share of all samples at or below it (nearest rank).
pub(crate) fn quantile<T: Copy + PartialOrd>(samples: &[T], percent: usize) -> Option<T> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// The median, as text made by `show`; `-` of nothing.
pub(crate) fn median<T: Copy + PartialOrd>(samples: &[T], show: impl Fn(T) -> String) -> String {
    quantile(samples, 50).map_or_else(|| "-".to_owned(), show)
}

pub(crate) fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

pub(crate) fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

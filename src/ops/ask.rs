//! Asking about a row: which provider, and what its answer proves for this row.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::provider::config::DEFAULT_TIMEOUT;
use crate::provider::{self, Provider, ProviderConfig, ProviderStatus, StatusQuery, Surroundings, Verdict};
use crate::record::Record;

/// The configured providers. Each adapter is made when it is first needed and then kept, with its connections.
#[derive(Debug)]
pub struct Providers {
    configs: BTreeMap<String, ProviderConfig>,
    surroundings: Surroundings,
    built: Mutex<BTreeMap<String, Arc<dyn Provider>>>,
}

/// Whom to ask about a row.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The adapter.
    pub provider: Arc<dyn Provider>,
    /// Whether the row or the operator named it; otherwise it is just the only one that is configured.
    pub named: bool,
}

impl Providers {
    /// Nothing is read or connected to yet.
    pub fn new(configs: BTreeMap<String, ProviderConfig>, surroundings: Surroundings) -> Self {
        Self {
            configs,
            surroundings,
            built: Mutex::default(),
        }
    }

    /// Nobody to ask.
    pub fn none() -> Self {
        let surroundings = Surroundings {
            env: Arc::new(|_| None),
            proxy: crate::provider::Proxies::default(),
        };
        Self::new(BTreeMap::new(), surroundings)
    }

    /// Whether none is configured.
    pub fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }

    /// The longest time that one of them has for an answer; zero where none is configured.
    pub(crate) fn longest_timeout(&self) -> std::time::Duration {
        let timeouts = self
            .configs
            .values()
            .map(|config| config.timeout.unwrap_or(DEFAULT_TIMEOUT));
        timeouts.max().unwrap_or_default()
    }

    /// Whether one of that name is configured.
    pub fn has(&self, name: &str) -> bool {
        self.configs.contains_key(name)
    }

    /// Each name with its adapter, or with what is wrong with its section.
    pub fn each(&self) -> impl Iterator<Item = (&str, Result<Arc<dyn Provider>>)> {
        self.configs.keys().map(|name| (name.as_str(), self.get(name)))
    }

    /// The names, for a message.
    pub fn names(&self) -> String {
        if self.configs.is_empty() {
            return "none".to_owned();
        }
        let names: Vec<&str> = self.configs.keys().map(String::as_str).collect();
        names.join(", ")
    }

    /// Makes every adapter, so that what is wrong with one is found now.
    ///
    /// Returns [`Error::Settings`] naming the key.
    pub fn check(&self) -> Result<()> {
        self.configs.keys().try_for_each(|name| self.get(name).map(drop))
    }

    /// The provider of that name.
    ///
    /// Returns [`Error::Settings`] where none of that name is configured, or its section is wrong.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Provider>> {
        let Some(config) = self.configs.get(name) else {
            return Err(Error::Settings {
                what: format!(
                    "no provider {name:?} is configured (configured: {})",
                    self.names()
                ),
            });
        };
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(provider) = built.get(name) {
            return Ok(Arc::clone(provider));
        }
        let provider = provider::build(name, config, &self.surroundings)?;
        built.insert(name.to_owned(), Arc::clone(&provider));
        Ok(provider)
    }

    /// The provider of that name; without a name the only one; `None` where none is configured.
    ///
    /// Returns [`Error::Settings`] for an unknown name, and where there are several to choose from.
    pub fn choose(&self, name: Option<&str>) -> Result<Option<Arc<dyn Provider>>> {
        match (name, self.configs.len()) {
            (Some(name), _) => self.get(name).map(Some),
            (None, 0) => Ok(None),
            (None, 1) => self.configs.keys().next().map(|name| self.get(name)).transpose(),
            (None, _) => Err(Error::Settings {
                what: format!(
                    "several providers are configured; name one with --provider: {}",
                    self.names()
                ),
            }),
        }
    }

    /// Whom to ask about a row: the provider that it names, else the one that the operator names, else the only
    /// one that is configured. `None` where the row names none and none is configured.
    ///
    /// A provider that the row names and nobody configured, and a choice of several, are errors: money may hang
    /// on it.
    pub fn for_row(&self, record: &Record, named: Option<&str>) -> Result<Option<Chosen>> {
        let name = record.provider.as_deref().or(named);
        Ok(self.choose(name)?.map(|provider| Chosen {
            provider,
            named: name.is_some(),
        }))
    }
}

impl Chosen {
    /// Asks about the row. That a provider which nobody named did not charge proves nothing: another one may have
    /// been charged.
    pub async fn about(&self, record: &Record) -> ProviderStatus {
        let mut status = self.provider.status(&query(record)).await;
        if !self.named && status.verdict == Verdict::NotCharged {
            status.verdict = Verdict::Unknown;
            status.reason = Some(
                "it was not charged there, but the row does not say that this provider was used; name it with --provider"
                    .to_owned(),
            );
        }
        status
    }
}

/// How much later than the end of its lease a row may say that it was made, for instance after a clock was set.
const NONSENSE: Duration = Duration::from_mins(5);

/// The question about a row. The last attempt may have reached the provider until its lease ended; while the
/// lease is alive, until now.
///
/// The row may have waited for its turn. Where a window has to begin, that time is added; how long the provider has
/// had to show a payment is not lengthened by it, which errs on the safe side.
fn query(record: &Record) -> StatusQuery {
    let query = StatusQuery::new(record.order_id());
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    let over = record.lease_remaining_seconds.and_then(|rest| seconds(-rest));
    let query = match over {
        Some(age) => query.attempted_at_age(age),
        None => query,
    };
    let age = record.age_seconds.filter(|age| *age >= 0.0).and_then(seconds);
    match (age, over) {
        // A row that says that it was made long after its lease had ended says nothing of when it was made.
        (Some(age), Some(over)) if age + NONSENSE < over => query,
        (Some(age), over) => {
            let age = age.max(over.unwrap_or_default());
            query.first_attempted_at_age(age.saturating_add(record.read.elapsed()))
        }
        (None, _) => query,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyId;
    use crate::time::{Stopwatch, Timestamp};

    fn record(age_seconds: f64, lease_remaining_seconds: f64, read: Stopwatch) -> Record {
        Record {
            id: KeyId::new("shop-1", "order-1").unwrap(),
            fingerprint: String::new(),
            status: "in_progress".to_owned(),
            state: None,
            locked_until: Timestamp::NEG_INFINITY,
            lease_remaining_seconds: Some(lease_remaining_seconds),
            created_at: Timestamp::NEG_INFINITY,
            age_seconds: Some(age_seconds),
            completed_at: None,
            retained_from: None,
            attempt: 1,
            lease_token: None,
            owner: None,
            operation: None,
            provider: None,
            order_id: None,
            last_error: None,
            response: None,
            as_of: Timestamp::NEG_INFINITY,
            read,
        }
    }

    #[test]
    fn a_row_that_cannot_be_older_than_its_lease_says_nothing_of_its_beginning() {
        for age in [600.0, -3600.0, -1e12] {
            let query = query(&record(age, -7140.0, Stopwatch::start()));
            assert_eq!(query.first_attempted_at_age, None, "{age}");
        }
    }

    #[test]
    fn a_row_that_waited_for_its_turn_is_looked_for_where_it_began() {
        let record = record(60.0, -30.0, Stopwatch::started_ago(Duration::from_mins(10)));
        let query = query(&record);
        let began = query.first_attempted_at_age.unwrap();
        assert!((660.0..670.0).contains(&began.as_secs_f64()), "{began:?}");
        assert_eq!(
            query.attempted_at_age,
            Some(Duration::from_secs(30)),
            "the lag is not shortened by waiting"
        );
    }
}

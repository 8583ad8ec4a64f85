//! The proxies of the environment, by the rules of curl (its manual page, "ENVIRONMENT").

use reqwest::{NoProxy, Proxy};

use super::EnvLookup;
use super::config::wrong;
use super::secret::Redacted;
use crate::error::{Error, Result};

/// Which proxy requests take where a provider's section names none. By default none.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    /// For `https://` addresses: `http://host:port`.
    pub https: Option<Redacted>,
    /// For `http://` addresses.
    pub http: Option<Redacted>,
    /// Hosts that are asked directly, separated by commas: names with all below them, addresses, networks
    /// (`10.0.0.0/8`), or `*` for all.
    pub exempt: Option<String>,
}

impl Proxies {
    /// One proxy for everything.
    pub fn all(url: impl Into<String>) -> Self {
        let url = Redacted::new(url);
        Self {
            https: Some(url.clone()),
            http: Some(url),
            exempt: None,
        }
    }

    /// `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`; the lower-case name goes first, an empty one counts
    /// as unset, and the proxy of a scheme goes before that for all.
    pub fn from_env(env: &EnvLookup) -> Self {
        let get = |name: &str| {
            let value = env(&name.to_ascii_lowercase()).filter(|value| !value.is_empty());
            value.or_else(|| env(name).filter(|value| !value.is_empty()))
        };
        let scheme = |name: &str| get(name).or_else(|| get("ALL_PROXY")).map(Redacted::new);
        Self {
            https: scheme("HTTPS_PROXY"),
            http: scheme("HTTP_PROXY"),
            exempt: get("NO_PROXY"),
        }
    }

    /// The proxies of one provider: its own, which has no exceptions, else these.
    pub(super) fn for_provider(&self, name: &str, own: Option<&Redacted>) -> Result<Vec<Proxy>> {
        if let Some(own) = own {
            let proxy = parse(own, |url: &str| Proxy::all(url));
            return Ok(vec![proxy.ok_or_else(|| wrong(name, "proxy", NO_URL))?]);
        }
        let exempt = self.exempt.as_deref().and_then(NoProxy::from_string);
        let of_environment = |variable: &str, url: &Redacted, make: fn(&str) -> reqwest::Result<Proxy>| {
            let proxy = parse(url, make).ok_or_else(|| Error::Settings {
                what: format!("{variable} (or ALL_PROXY) {NO_URL}"),
            });
            Ok::<_, Error>(proxy?.no_proxy(exempt.clone()))
        };
        let mut proxies = Vec::new();
        if let Some(url) = &self.https {
            proxies.push(of_environment("HTTPS_PROXY", url, |url| Proxy::https(url))?);
        }
        if let Some(url) = &self.http {
            proxies.push(of_environment("HTTP_PROXY", url, |url| Proxy::http(url))?);
        }
        Ok(proxies)
    }
}

const NO_URL: &str = "is no URL such as http://host:3128";

/// The error is not shown: it may quote the address, and so a password. Other schemes, such as SOCKS, would not
/// be used at all, and the request would go past the proxy.
fn parse(url: &Redacted, make: impl Fn(&str) -> reqwest::Result<Proxy>) -> Option<Proxy> {
    let url = url.reveal();
    let scheme = url.split_once("://").map_or("http", |(scheme, _)| scheme);
    if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return None;
    }
    make(url).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &'static [(&str, &str)]) -> [Option<String>; 3] {
        let env: EnvLookup = std::sync::Arc::new(|name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        let Proxies { https, http, exempt } = Proxies::from_env(&env);
        let reveal = |url: Option<Redacted>| url.map(|url| url.reveal().to_owned());
        [reveal(https), reveal(http), exempt]
    }

    #[test]
    fn variables_go_by_scheme_then_all_and_lower_case_first() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(chosen(&[]), [None, None, None]);
        assert_eq!(
            chosen(&[("HTTPS_PROXY", "s"), ("ALL_PROXY", "a"), ("NO_PROXY", "x")]),
            [some("s"), some("a"), some("x")]
        );
        assert_eq!(
            chosen(&[
                ("HTTPS_PROXY", "S"),
                ("https_proxy", "s"),
                ("http_proxy", ""),
                ("HTTP_PROXY", "h")
            ]),
            [some("s"), some("h"), None]
        );
    }

    #[test]
    fn what_is_no_proxy_is_named_without_its_text() {
        for url in ["http://[s3cret", "socks5://u:s3cret@host:1"] {
            let own = Redacted::new(url);
            let error = Proxies::default().for_provider("acme", Some(&own)).unwrap_err();
            assert!(error.to_string().contains("providers.acme.proxy"), "{error}");
            let error = Proxies::all(url).for_provider("acme", None).unwrap_err();
            assert!(error.to_string().contains("HTTPS_PROXY"), "{error}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
        let own = Redacted::new("host:3128");
        assert_eq!(
            Proxies::default().for_provider("acme", Some(&own)).unwrap().len(),
            1
        );
    }
}

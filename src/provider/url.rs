//! The address of a look-up, with a place for the order id that nothing can break out of.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

/// Where the order id goes.
const PLACE: &str = "{order_id}";

/// All but the unreserved characters of RFC 3986 section 2.3 is encoded, in the path as in the query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A checked address with at least one `{order_id}` in its path or query.
#[derive(Clone)]
pub(super) struct UrlTemplate {
    text: String,
    /// Scheme, host and port, for messages: a query may hold a secret.
    origin: String,
    https: bool,
    in_path: bool,
}

impl UrlTemplate {
    /// Checks the address; otherwise says what is wrong, to follow the name of the setting.
    pub(super) fn parse(text: &str, allow_http: bool) -> Result<Self, String> {
        let Some(place) = text.find(PLACE) else {
            check_text(text)?;
            return Err(format!("has no {PLACE} where the order id goes"));
        };
        if place < check_text(text)? {
            return Err(format!(
                "has {PLACE} in its host; it may stand in the path or in the query"
            ));
        }
        if text.replace(PLACE, "").contains(['{', '}']) {
            return Err(format!("has a brace that does not belong to {PLACE}"));
        }
        let url = check_url(&text.replace(PLACE, "x"), "`headers`", allow_http)?;
        Ok(Self {
            text: text.to_owned(),
            origin: url.origin().ascii_serialization(),
            https: url.scheme() == "https",
            in_path: url_path_has_place(text),
        })
    }

    /// Whether the order id is part of the path, so that the address itself names one order and a 404 can mean
    /// that there is none. With the id in the query alone, a 404 says that the address is wrong.
    pub(super) fn is_in_path(&self) -> bool {
        self.in_path
    }

    /// The address for one order.
    ///
    /// Refuses an order id that would make a path segment `.` or `..`: percent-encoded dots are dots to every
    /// URL parser (WHATWG URL, "double-dot URL path segment"), so that it cannot be sent as it is.
    pub(super) fn fill(&self, order_id: &str) -> Result<Url, String> {
        let encoded = utf8_percent_encode(order_id, ENCODED).to_string();
        let path_end = self.text.find('?').unwrap_or(self.text.len());
        for segment in self.text[..path_end]
            .split('/')
            .filter(|segment| segment.contains(PLACE))
        {
            let dots = segment
                .replace(PLACE, &encoded)
                .to_ascii_lowercase()
                .replace("%2e", ".");
            if dots == "." || dots == ".." {
                return Err("the order id would be taken for a step in the URL's path".to_owned());
            }
        }
        Url::parse(&self.text.replace(PLACE, &encoded))
            .map_err(|error| format!("no URL comes of it: {error}"))
    }

    /// Scheme, host and port.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    pub(super) fn is_https(&self) -> bool {
        self.https
    }
}

impl std::fmt::Debug for UrlTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UrlTemplate({})", self.origin)
    }
}

/// A checked address that the adapter of a vendor adds paths and queries to.
#[derive(Clone)]
pub(super) struct BaseUrl {
    /// Without a slash at its end.
    text: String,
    origin: String,
    https: bool,
}

impl BaseUrl {
    /// Checks the address; otherwise says what is wrong, to follow the name of the setting.
    pub(super) fn parse(text: &str, allow_http: bool) -> Result<Self, String> {
        check_text(text)?;
        if text.contains(['{', '}', '?']) {
            return Err(
                "has a brace or a query; give the address alone, such as https://api.example.com".to_owned(),
            );
        }
        let url = check_url(text, "`secret`", allow_http)?;
        Ok(Self {
            text: text.trim_end_matches('/').to_owned(),
            origin: url.origin().ascii_serialization(),
            https: url.scheme() == "https",
        })
    }

    /// The address with a path of ours (`/v3/payments`) and a query whose values nothing can break out of.
    pub(super) fn with(&self, path: &str, query: &[(&str, &str)]) -> Result<Url, String> {
        let mut text = format!("{}{path}", self.text);
        for (i, (name, value)) in query.iter().enumerate() {
            text.push(if i == 0 { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.extend(utf8_percent_encode(value, ENCODED));
        }
        Url::parse(&text).map_err(|error| format!("no URL comes of it: {error}"))
    }

    /// Scheme, host and port.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    pub(super) fn is_https(&self) -> bool {
        self.https
    }
}

impl std::fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BaseUrl({})", self.origin)
    }
}

/// What can be said before the parser smooths it over; gives where the authority ends.
fn check_text(text: &str) -> Result<usize, String> {
    if text
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || c == '\\')
    {
        return Err("has a blank, a control character or a backslash".to_owned());
    }
    let Some(rest) = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
    else {
        return Err("does not begin with https:// or http://".to_owned());
    };
    if rest.is_empty() || rest.starts_with(['/', '?', '#']) {
        // URL parsers skip further slashes, so that the path's first segment would become the host.
        return Err("has no host".to_owned());
    }
    Ok(text.len() - rest.len() + rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// Parses an address and checks that it keeps what is sent to it. `credentials`: where they belong instead.
fn check_url(text: &str, credentials: &str, allow_http: bool) -> Result<Url, String> {
    // The error of the parser does not quote the text.
    let url = Url::parse(text).map_err(|error| format!("cannot be read: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!(
            "has a user or password; put credentials into {credentials}"
        ));
    }
    if url.fragment().is_some() {
        return Err("has a fragment (#), which is never sent".to_owned());
    }
    if url.scheme() == "http" && !is_loopback(&url) && !allow_http {
        return Err(
            "is plain http to another machine: anybody on the way can read the credentials and forge the \
                    answer; use https, or set allow_http = true"
                .to_owned(),
        );
    }
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            bare.parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

fn url_path_has_place(text: &str) -> bool {
    text.split('?').next().is_some_and(|path| path.contains(PLACE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_order_id_breaks_out_of_its_place() {
        let path = UrlTemplate::parse("https://p.example/v1/payments/{order_id}/state?x=1", false).unwrap();
        let query = UrlTemplate::parse("https://p.example/v1/payments?m=9&id={order_id}&x=1", false).unwrap();
        for id in [
            "../x?y=1&z#",
            "a/b",
            "a\\b",
            "?",
            "#",
            "%2e%2e",
            "a&b=c",
            "a+b c",
            "é\u{1f600}",
            "a;b",
            "...",
            "{order_id}",
        ] {
            let url = path.fill(id).unwrap();
            let segments: Vec<_> = url.path_segments().unwrap().collect();
            assert_eq!(
                (segments.len(), segments[2] == "state" || segments[3] == "state"),
                (4, true),
                "{url}"
            );
            assert_eq!(
                percent_encoding::percent_decode_str(segments[2])
                    .decode_utf8()
                    .unwrap(),
                id
            );
            assert_eq!((url.query(), url.fragment()), (Some("x=1"), None));
            let url = query.fill(id).unwrap();
            let pairs: Vec<_> = url.query_pairs().into_owned().collect();
            let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
            assert_eq!(pairs, [pair("m", "9"), pair("id", id), pair("x", "1")]);
            assert_eq!((url.path(), url.fragment()), ("/v1/payments", None));
        }
    }

    #[test]
    fn dot_segments_are_refused_in_the_path_only() {
        let path = UrlTemplate::parse("https://p.example/v1/{order_id}", false).unwrap();
        assert!(path.fill(".").is_err() && path.fill("..").is_err());
        let dotted = UrlTemplate::parse("https://p.example/v1/%2E{order_id}", false).unwrap();
        assert!(dotted.fill(".").is_err());
        let query = UrlTemplate::parse("https://p.example/v1?id={order_id}", false).unwrap();
        assert_eq!(query.fill("..").unwrap().query(), Some("id=.."));
    }

    #[test]
    fn addresses_are_checked() {
        for (text, problem) in [
            ("https://p.example/v1", "no {order_id}"),
            ("/v1/{order_id}", "does not begin"),
            ("https://{order_id}.p.example/", "in its host"),
            ("https://u:s3cret@p.example/{order_id}", "user or password"),
            ("https://p.example/x?a#{order_id}", "fragment"),
            ("ftp://p.example/{order_id}", "does not begin"),
            ("http://p.example/{order_id}", "plain http"),
            ("http://127.evil.example/{order_id}", "plain http"),
            ("https://p.example\\@evil.example/{order_id}", "backslash"),
            ("https://p.example/{order}/{order_id}", "brace"),
            ("https:///{order_id}", "no host"),
            ("https:p.example/{order_id}", "does not begin"),
            ("https://p.example:99999/{order_id}", "cannot be read"),
        ] {
            let error = UrlTemplate::parse(text, false).unwrap_err();
            assert!(
                error.contains(problem) && !error.contains("s3cret"),
                "{text}: {error}"
            );
        }
        for text in [
            "http://localhost:1/{order_id}",
            "http://127.0.0.1:1/{order_id}",
            "http://[::1]/{order_id}",
        ] {
            assert!(UrlTemplate::parse(text, false).is_ok());
        }
        assert!(UrlTemplate::parse("http://p.example/{order_id}", true).is_ok());
    }
}

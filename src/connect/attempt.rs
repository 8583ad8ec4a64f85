//! The way to a connection: each host, each of its addresses, with and without TLS as `sslmode` allows.

use tokio_postgres::config::{SslMode as DriverMode, SslNegotiation};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{Client, Config, NoTls};

use super::cancel::Canceller;
use super::explain::explain;
use super::facts::{Encryption, Facts, OurEnd, Route, route};
use super::line::{Leash, Line};
use super::settings::{Endpoint, Settings, SslMode, Target};
use super::socket::{Place, Socket};
use super::tls::{Maker, Progress, server_name};
use crate::error::{Error, Result};
use crate::store::session::{Session, session};

/// A connection that is logged in and answers.
pub(super) struct Opened {
    pub(super) client: Client,
    pub(super) line: Leash,
    pub(super) task: tokio::task::JoinHandle<()>,
    pub(super) facts: Facts,
}

/// Why one try failed.
struct Failure {
    what: String,
    /// The server answered and said no: other hosts are not asked, as in libpq.
    last: bool,
}

/// Tries every host in turn.
pub(super) async fn open(settings: &Settings) -> Result<Opened> {
    settings.timeouts.check()?;
    let may_encrypt = settings.tls.mode != SslMode::Disable;
    let uses_tcp = settings
        .endpoints
        .iter()
        .any(|endpoint| endpoint.socket_directory().is_none());
    let maker = if may_encrypt && uses_tcp {
        Some(Maker::new(&settings.tls)?)
    } else {
        None
    };
    let targets: &[Target] = match settings.target {
        Target::PreferStandby => &[Target::Standby, Target::Any],
        ref other => std::slice::from_ref(other),
    };
    let mut endpoints: Vec<_> = settings.endpoints.iter().collect();
    if settings.shuffle {
        fastrand::shuffle(&mut endpoints);
    }
    let mut causes: Vec<String> = Vec::new();
    for target in targets {
        for endpoint in &endpoints {
            match try_endpoint(settings, endpoint, maker.as_ref(), *target, &mut causes).await {
                Some(Ok(opened)) => return Ok(opened),
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
    }
    Err(unreachable(&causes))
}

fn unreachable(causes: &[String]) -> Error {
    Error::Unreachable {
        what: causes.join("; "),
    }
}

/// `None`: this host will not do, go on with the next.
async fn try_endpoint(
    settings: &Settings,
    endpoint: &Endpoint,
    maker: Option<&Maker>,
    target: Target,
    causes: &mut Vec<String>,
) -> Option<Result<Opened>> {
    let limit = settings.timeouts.connect;
    if settings.tls.mode == SslMode::VerifyFull && endpoint.host.is_none() {
        return Some(Err(Error::Settings {
            what: format!("sslmode=verify-full needs the name of {endpoint}: give host= beside hostaddr="),
        }));
    }
    let places = match tokio::time::timeout(limit, endpoint.places()).await {
        Ok(Ok(places)) => places,
        Ok(Err(error)) => {
            causes.push(format!("{endpoint}: {error}; check the host's name"));
            return None;
        }
        Err(_) => {
            causes.push(format!(
                "{endpoint}: the name was not resolved within {} s",
                limit.as_secs_f64()
            ));
            return None;
        }
    };
    for place in places {
        let attempt = Attempt {
            settings,
            endpoint,
            place: &place,
            maker,
        };
        let failure = match tokio::time::timeout(limit, attempt.run(target)).await {
            Ok(Ok(opened)) => return Some(Ok(opened)),
            Ok(Err(failure)) => failure,
            Err(_) => Failure {
                what: format!("no answer within {} s (connect_timeout)", limit.as_secs_f64()),
                last: false,
            },
        };
        let cause = attempt.name(&failure.what);
        if !causes.contains(&cause) {
            causes.push(cause);
        }
        if failure.last {
            return Some(Err(unreachable(causes)));
        }
    }
    None
}

/// One address of one host.
struct Attempt<'a> {
    settings: &'a Settings,
    endpoint: &'a Endpoint,
    place: &'a Place,
    maker: Option<&'a Maker>,
}

/// A log-in that succeeded.
struct LoggedIn {
    client: Client,
    line: Leash,
    task: tokio::task::JoinHandle<()>,
    encryption: Encryption,
    ours: OurEnd,
}

impl Attempt<'_> {
    fn name(&self, what: &str) -> String {
        let place = self.place.to_string();
        let endpoint = self.endpoint.to_string();
        match self.place {
            Place::Unix(_) => format!("{}: {what}", place.escape_debug()),
            Place::Tcp(_) if place == endpoint => format!("{place}: {what}"),
            Place::Tcp(_) => format!("{endpoint} ({place}): {what}"),
        }
    }

    async fn run(&self, target: Target) -> Result<Opened, Failure> {
        let LoggedIn {
            client,
            line,
            task,
            encryption,
            ours,
        } = self.log_in().await?;
        let found = session(&client).await.map_err(|error| Failure {
            what: format!("logged in, but the first question failed: {}", line.judge(error)),
            last: false,
        })?;
        if let Some(what) = unsuitable(target, &found) {
            return Err(Failure {
                what: what.to_owned(),
                last: false,
            });
        }
        let facts = self.facts(found, encryption, ours);
        Ok(Opened {
            client,
            line,
            task,
            facts,
        })
    }

    fn facts(&self, session: Session, encryption: Encryption, ours: OurEnd) -> Facts {
        let route = route(self.place, ours, &session);
        let prepared = match self.settings.statements {
            super::StatementMode::Auto => route == Route::Direct,
            super::StatementMode::Prepared => true,
            super::StatementMode::Unnamed => false,
        };
        Facts {
            host: self.endpoint.to_string(),
            address: self.place.to_string(),
            route,
            prepared,
            encryption,
            server_version: session.version,
            server_version_number: session.version_number,
            in_recovery: session.in_recovery,
            read_only: session.read_only,
            user: session.user,
            database: session.database,
            backend: session.backend,
        }
    }

    /// With TLS, without, or one after the other (manual, "SSL Mode Descriptions").
    async fn log_in(&self) -> Result<LoggedIn, Failure> {
        let mode = self.settings.tls.mode;
        let Some(maker) = self.maker.filter(|_| matches!(self.place, Place::Tcp(_))) else {
            return self.plain(None).await.map_err(|error| self.failure(&error));
        };
        match mode {
            SslMode::Disable => self.plain(None).await.map_err(|error| self.failure(&error)),
            SslMode::Allow => match self.plain(None).await {
                Err(Trouble::Driver(error)) if error.as_db_error().is_some() => {
                    let refused = self.failure(&Trouble::Driver(error));
                    let progress = Progress::default();
                    self.encrypted(maker, DriverMode::Require, &progress)
                        .await
                        .map_err(|error| Failure {
                            what: format!(
                                "without TLS: {}; with TLS: {}",
                                refused.what,
                                self.failure(&error).what
                            ),
                            last: true,
                        })
                }
                other => other.map_err(|error| self.failure(&error)),
            },
            SslMode::Prefer => {
                let progress = Progress::default();
                match self.encrypted(maker, DriverMode::Prefer, &progress).await {
                    Err(Trouble::Driver(error)) if progress.begun() && may_do_without(&error, &progress) => {
                        let with = self.failure(&Trouble::Driver(error)).what;
                        self.plain(Some(with.clone())).await.map_err(|error| {
                            let Failure { what, last } = self.failure(&error);
                            Failure {
                                what: format!("with TLS: {with}; without TLS: {what}"),
                                last,
                            }
                        })
                    }
                    other => other.map_err(|error| self.failure(&error)),
                }
            }
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => self
                .encrypted(maker, DriverMode::Require, &Progress::default())
                .await
                .map_err(|error| self.failure(&error)),
        }
    }

    async fn plain(&self, why: Option<String>) -> Result<LoggedIn, Trouble> {
        let local = matches!(self.place, Place::Unix(_));
        let encryption = if local {
            Encryption::Local
        } else {
            Encryption::Plain { why }
        };
        let make = |token| self.canceller(token, None);
        self.connect(NoTls, DriverMode::Disable, make, || encryption)
            .await
    }

    async fn encrypted(
        &self,
        maker: &Maker,
        mode: DriverMode,
        progress: &Progress,
    ) -> Result<LoggedIn, Trouble> {
        let Place::Tcp(address) = self.place else {
            return self.plain(None).await;
        };
        let name = server_name(self.endpoint.host.as_deref(), Some(address.ip()));
        let connector = maker.connector(&name, progress);
        let make = |token| self.canceller(token, Some(maker.connector(&name, &Progress::default())));
        let encryption = || {
            if progress.done() {
                Encryption::Tls
            } else {
                Encryption::Plain {
                    why: Some("the server offers no TLS".to_owned()),
                }
            }
        };
        self.connect(connector, mode, make, encryption).await
    }

    fn canceller(&self, token: tokio_postgres::CancelToken, tls: Option<super::tls::Connector>) -> Canceller {
        Canceller {
            token,
            place: self.place.clone(),
            tcp: self.settings.tcp.clone(),
            tls,
        }
    }

    async fn connect<T>(
        &self,
        tls: T,
        mode: DriverMode,
        canceller: impl FnOnce(tokio_postgres::CancelToken) -> Canceller,
        encryption: impl FnOnce() -> Encryption,
    ) -> Result<LoggedIn, Trouble>
    where
        T: TlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let socket = self
            .place
            .open(&self.settings.tcp)
            .await
            .map_err(Trouble::Socket)?;
        let ours = OurEnd::of(&socket);
        let (client, driver) = self
            .config(mode)
            .connect_raw(socket, tls)
            .await
            .map_err(Trouble::Driver)?;
        let (line, task) = Line::start(driver, canceller(client.cancel_token()));
        Ok(LoggedIn {
            client,
            line,
            task,
            encryption: encryption(),
            ours,
        })
    }

    fn config(&self, mode: DriverMode) -> Config {
        let settings = self.settings;
        let mut config = Config::new();
        config
            .user(&settings.user)
            .dbname(&settings.database)
            .application_name(&settings.application_name)
            .channel_binding(settings.channel_binding)
            .ssl_mode(mode);
        if settings.tls.direct && mode == DriverMode::Require {
            config.ssl_negotiation(SslNegotiation::Direct);
        }
        if let Some(options) = &settings.options {
            config.options(options);
        }
        if let Some(password) = &self.endpoint.password {
            config.password(password.expose());
        }
        config
    }

    fn failure(&self, trouble: &Trouble) -> Failure {
        match trouble {
            Trouble::Driver(error) => Failure {
                what: explain(error, self.settings, self.endpoint),
                // 57P03: the server is starting or stopping; another may well be up.
                last: error.code().is_some_and(|code| code.code() != "57P03"),
            },
            Trouble::Socket(error) => {
                let hint = match (self.place, error.kind()) {
                    (Place::Unix(_), std::io::ErrorKind::NotFound) => "; is the server running there?",
                    (_, std::io::ErrorKind::ConnectionRefused) => "; is a server listening there?",
                    _ => "",
                };
                Failure {
                    what: format!("{error}{hint}"),
                    last: false,
                }
            }
        }
    }
}

enum Trouble {
    Socket(std::io::Error),
    Driver(tokio_postgres::Error),
}

/// `prefer` goes on without TLS when the handshake failed, and when the server admits this user only so.
fn may_do_without(error: &tokio_postgres::Error, progress: &Progress) -> bool {
    !progress.done() || error.code().is_some_and(|code| code.code() == "28000")
}

/// Why the server is not of the kind that `target_session_attrs` asks for.
fn unsuitable(target: Target, session: &Session) -> Option<&'static str> {
    match target {
        Target::ReadWrite if session.read_only => Some("the session is read-only (target_session_attrs)"),
        Target::ReadOnly if !session.read_only => Some("the session is not read-only (target_session_attrs)"),
        Target::Primary if session.in_recovery => Some("the server is a standby (target_session_attrs)"),
        Target::Standby if !session.in_recovery => Some("the server is not a standby (target_session_attrs)"),
        _ => None,
    }
}

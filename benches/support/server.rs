//! A private PostgreSQL that is gone when this process is.

use std::path::PathBuf;

use idemctl::dev::{Binaries, Identity, Lifetime, Options, Server};

use crate::Result;

/// Socket paths are short, and a server that does not run as root must reach it.
pub(crate) fn directory() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("idemctl-bench-")
        .tempdir_in("/tmp")?)
}

/// Starts a server that ends with this process, whatever happens, and leaves nothing behind.
pub(crate) async fn start(settings: &[(&str, &str)]) -> Result<Server> {
    let binaries = Binaries::find(None)?;
    let guard = directory()?;
    let dir: PathBuf = guard.path().to_owned();
    Identity::for_dir(&dir.join("pg"))?.own(&dir)?;
    println!("PostgreSQL {}", binaries.version());
    let mut options = Options::new(dir.join("pg"), binaries);
    options.throwaway = true;
    options.remove = Some(dir);
    options.settings = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let server = Server::start(&options, Lifetime::Tied).await?;
    // From now on the server's supervisor removes it.
    let _kept = guard.keep();
    for (name, value) in settings {
        println!("  {name} = {value}");
    }
    Ok(server)
}

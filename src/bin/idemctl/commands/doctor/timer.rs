//! Whether this machine runs the purge by itself.

use std::io::ErrorKind;
use std::time::Duration;

use idemctl::ops::doctor::Check;

/// The units of `systemd/`, either of which will do.
const UNITS: [&str; 2] = ["idemctl-purge.timer", "idemctl-janitor.service"];

/// systemctl asks a manager that may not answer.
const LIMIT: Duration = Duration::from_secs(5);

/// `purged`: the database knows of a purge, so that another machine may run it.
pub(super) async fn check(purged: bool) -> Check {
    let check = Check::of(
        "timer",
        format!("{} enabled, here or on another machine", UNITS.join(" or ")),
    );
    let mut words = Vec::new();
    for unit in UNITS {
        match state(unit).await {
            Ok(word) if word.starts_with("enabled") => return check.ok(format!("{unit} is {word}")),
            Ok(word) => words.push(format!("{unit}: {word}")),
            Err(why) => return check.unknown(why),
        }
    }
    let found = format!("not enabled on this machine ({})", words.join(", "));
    if purged {
        check.ok(format!("{found}; a purge runs somewhere"))
    } else {
        check.warning(found, "systemctl enable --now idemctl-purge.timer")
    }
}

/// What systemctl says of a unit (systemctl(1), "is-enabled"): one word, also where it exits with 1.
async fn state(unit: &str) -> Result<String, String> {
    let mut command = tokio::process::Command::new("systemctl");
    command.args(["is-enabled", unit]).kill_on_drop(true);
    let output = match tokio::time::timeout(LIMIT, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
            return Err("there is no systemctl on this machine".to_owned());
        }
        Ok(Err(error)) => return Err(format!("couldn't run systemctl: {error}")),
        Err(_) => return Err(format!("systemctl did not answer within {} s", LIMIT.as_secs())),
    };
    let word = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if word.is_empty() {
        // Older versions say that a unit does not exist on stderr alone.
        return Ok("not installed".to_owned());
    }
    Ok(word)
}

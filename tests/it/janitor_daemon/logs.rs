//! `--log-format`, and what journald is sent.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Place, QUIET, terminate};
use crate::purge::fixture;
use crate::support::{Output, Run, idemctl};

/// Every line of stderr, as JSON.
fn lines(output: &Output) -> Vec<Value> {
    let lines = output.stderr.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn json_lines_are_json() {
    let f = fixture().await;
    let place = Place::new(&format!("{QUIET}[log]\nformat = \"json\"\n"));
    let daemon = place.janitor(&f.db.url).spawn();
    place.told_until("no run yet, next").await;
    place.write(&format!("{QUIET}[log]\nformat = \"text\"\n"));
    daemon.signal(Signal::SIGHUP);
    place.told_until("RELOADING=1").await;
    let output = terminate(daemon).await;
    assert_eq!(output.stdout, "");
    let all = lines(&output);
    // The other format would come into force with another start, and that is said.
    let word = |line: &&Value| line["message"].as_str().unwrap().contains("[log] format");
    assert_eq!(all.iter().filter(word).count(), 1, "{all:#?}");
    for line in &all {
        let time = line["time"].as_str().unwrap();
        chrono::DateTime::parse_from_rfc3339(time).unwrap_or_else(|error| panic!("{error}: {time}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    let next = all
        .iter()
        .find(|line| line["message"] == "next run")
        .expect("the next run");
    assert_eq!(next["level"], "info");
    assert!(
        next["fields"]["at"].is_string() && next["fields"]["job"].is_string(),
        "{next}"
    );
    assert!(all.iter().any(|line| line["fields"]["signal"] == 15), "{all:#?}");
}

/// Also what is said before the configuration is known, or against it, and by other commands.
#[tokio::test]
async fn errors_are_json_too() {
    let place = Place::new("[log]\nformat = \"xml\"\n");
    let config = place.config();
    let output = idemctl(&["config", "--log-format", "json", "-c", config.to_str().unwrap()])
        .run()
        .await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    let said = lines(&output);
    let message = said[0]["message"].as_str().unwrap();
    assert!(message.contains("line 2"), "{said:?}");
    assert_eq!(
        (said[0]["level"].as_str(), said.len()),
        (Some("error"), 2),
        "with a hint: {said:?}"
    );
    let away = [
        "list",
        "-d",
        "host=/nowhere user=x",
        "--log-format",
        "json",
        "-vvv",
    ];
    let output = idemctl(&away).run().await;
    assert_eq!(output.code, 7, "{}", output.transcript());
    assert!(!lines(&output).is_empty());
    // Flag beats file.
    place.write("[log]\nformat = \"json\"\n");
    let text = idemctl(&[
        "purge",
        "-d",
        "host=/nowhere user=x",
        "--log-format",
        "text",
        "-c",
        config.to_str().unwrap(),
    ]);
    let output = text.run().await;
    assert!(output.stderr.starts_with("error: "), "{}", output.transcript());
}

#[tokio::test]
async fn journald_gets_priorities_and_no_second_time() {
    let idemctl = env!("CARGO_BIN_EXE_idemctl");
    // As systemd sets it: which file stderr was when the process started.
    let journal = "JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2)";
    let args = "purge -d 'host=/nowhere user=x' -vv";
    let output = Run::new("/bin/sh", &["-c", &format!("{journal} exec {idemctl} {args}")])
        .run()
        .await;
    assert_eq!(output.code, 7, "{}", output.transcript());
    assert!(!output.stderr.is_empty());
    for line in output.stderr.lines() {
        assert!(
            line.starts_with("<3>") || line.starts_with("<6>") || line.starts_with("<7>"),
            "{line}"
        );
    }
    assert!(output.stderr.contains("<3>error: "), "{}", output.transcript());
    assert!(output.stderr.contains("<3>hint: "), "{}", output.transcript());
    // Redirected since: somebody else reads it.
    let other = format!("JOURNAL_STREAM=1:1 exec {idemctl} {args}");
    let output = Run::new("/bin/sh", &["-c", &other]).run().await;
    assert!(!output.stderr.contains("<3>"), "{}", output.transcript());
    // JSON stays JSON.
    let json = format!("{journal} exec {idemctl} {args} --log-format json");
    let output = Run::new("/bin/sh", &["-c", &json]).run().await;
    assert!(!lines(&output).is_empty());
}

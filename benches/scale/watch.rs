//! What the server did for a program: `auto_explain` writes the plan of every statement into its log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use idemctl::dev::Server;
use serde_json::Value;
use tokio_postgres::Client;

use crate::Result;

/// No times of single nodes: reading the clock for each row takes longer than many a row.
const EXPLAIN: &[(&str, &str)] = &[
    ("session_preload_libraries", "auto_explain"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_buffers", "on"),
    ("auto_explain.log_timing", "off"),
    ("auto_explain.log_format", "json"),
];

/// The statements of one run.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Pages that they touched, in the cache or not.
    pub(crate) pages: u64,
    /// The statement that touched most, and how.
    pub(crate) plan: String,
}

/// The log, from where it was looked at last.
pub(crate) struct Watch {
    log: PathBuf,
    read: u64,
}

impl Watch {
    pub(crate) fn new(server: &Server) -> Self {
        Self {
            log: server.dir().join("server.log"),
            read: 0,
        }
    }

    /// From now on sessions of this database explain what they do, until [`Watch::stop`].
    pub(crate) async fn start(&mut self, admin: &Client, database: &str) -> Result<()> {
        admin.batch_execute("load 'auto_explain'").await.map_err(|e| {
            format!("auto_explain is missing; install PostgreSQL's contrib modules (Debian has them with the server): {e}")
        })?;
        for (name, value) in EXPLAIN {
            let set = format!("alter database {database} set {name} = '{value}'");
            admin.batch_execute(&set).await?;
        }
        self.read = std::fs::metadata(&self.log)?.len();
        Ok(())
    }

    /// Ends it, and tells what the sessions did that began since the start.
    pub(crate) async fn stop(&mut self, admin: &Client, database: &str) -> Result<Seen> {
        admin
            .batch_execute(&format!("alter database {database} reset all"))
            .await?;
        let text = tail(&self.log, self.read)?;
        self.read += text.len() as u64;
        summary(&String::from_utf8_lossy(&text))
    }
}

fn tail(path: &Path, from: u64) -> Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

fn summary(log: &str) -> Result<Seen> {
    let mut seen = Seen::default();
    // The same statement may run hundreds of times: its pages, its runs, and the costliest of them.
    let mut by_name: BTreeMap<String, (u64, usize, u64, String)> = BTreeMap::new();
    for entry in entries(log) {
        let explained: Value = serde_json::from_str(&entry)?;
        let Some(name) = explained["Query Text"]
            .as_str()
            .and_then(|text| text.strip_prefix("-- idemctl:"))
            .and_then(|text| text.lines().next())
        else {
            continue;
        };
        let plan = &explained["Plan"];
        let pages = pages(plan);
        seen.pages += pages;
        // Questions to the catalogue cost what they cost in every database.
        let Some(scan) = scan(plan) else { continue };
        let (sum, runs, most, text) = by_name.entry(name.to_owned()).or_default();
        *sum += pages;
        *runs += 1;
        if pages >= *most {
            (*most, *text) = (pages, scan);
        }
    }
    if let Some((name, (_, runs, _, scan))) = by_name.into_iter().max_by_key(|(_, (sum, ..))| *sum) {
        let times = if runs > 1 {
            format!(" x{runs}")
        } else {
            String::new()
        };
        seen.plan = format!("{name}{times}: {scan}");
    }
    Ok(seen)
}

/// Each is `... plan:`, then lines that begin with a tab.
fn entries(log: &str) -> Vec<String> {
    let mut lines = log.lines().peekable();
    let mut entries = Vec::new();
    while let Some(line) = lines.next() {
        if line.ends_with("plan:") {
            let mut entry = String::new();
            while let Some(line) = lines.next_if(|line| line.starts_with('\t')) {
                entry.push_str(line);
            }
            entries.push(entry);
        }
    }
    entries
}

fn pages(plan: &Value) -> u64 {
    let number = |field: &str| plan[field].as_u64().unwrap_or(0);
    number("Shared Hit Blocks") + number("Shared Read Blocks")
}

/// The node that reads one of our tables and touches most pages; and how many such nodes ran.
fn scan(plan: &Value) -> Option<String> {
    let mut scans = Vec::new();
    collect(plan, &mut scans);
    let most = scans.iter().max_by_key(|node| pages(node))?;
    let kind = most["Node Type"].as_str().unwrap_or("?");
    let index = most["Index Name"].as_str().map_or_else(String::new, |name| {
        format!(" {}", name.trim_start_matches("idempotency_"))
    });
    let ran = scans
        .iter()
        .filter(|node| node["Actual Loops"].as_u64() != Some(0))
        .count();
    let others = if ran > 1 {
        format!(" ({ran} scans)")
    } else {
        String::new()
    };
    Some(format!("{kind}{index}{others}"))
}

fn collect<'a>(node: &'a Value, scans: &mut Vec<&'a Value>) {
    let ours = |name: &str| name.starts_with("idempotency");
    if node["Node Type"]
        .as_str()
        .is_some_and(|kind| kind.contains("Scan"))
        && node["Relation Name"].as_str().is_some_and(ours)
    {
        scans.push(node);
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        collect(child, scans);
    }
}

//! What operators ask, on the big table and on one of a tenth of it.

use std::time::Duration;

use crate::goal::Goal;
use crate::program::{self, Run};
use crate::report::{Table, median, ms};
use crate::watch::{Seen, Watch};
use crate::{Base, Result};

/// Pages that come and go with the depth of an index and the luck of the day.
const SLACK: u64 = 200;

/// Beyond this ratio of pages a question counts as one that grows, where the table is ten times as large.
const FLAT: f64 = 2.0;

/// Every question, as it is typed.
const QUESTIONS: &[&str] = &[
    "inspect {ID}",
    "history {ID}",
    "list",
    "list --sort oldest",
    "list --cursor {CURSOR}",
    "list --client shop-1",
    "list --client shop-2",
    "list --client shop-500",
    "list --client shop-x",
    "list --key-prefix order-",
    "list --key-prefix abc",
    "list --key-prefix zz",
    "list --client shop-1 --key-prefix zz",
    "list --client shop-1 --key-prefix order-1",
    "list --state in_progress",
    "list --state expired",
    "list --state expired --sort oldest",
    "list --state done",
    "list --state failed",
    "list --state failed --cursor {CURSOR}",
    "list --state failed --newer-than 6h",
    "list --state done --state failed --sort oldest",
    "list --state expired --client shop-1 --older-than 1h",
    "list --client shop-1 --state failed",
    "list --older-than 12h",
    "list --newer-than 1h",
    "list --provider acme",
    "list --provider rare",
    "list --provider none",
    "list --provider rare --older-than 12h --sort oldest",
    "release --expired --dry-run",
    "release --expired --client shop-1 --dry-run",
    "reconcile --expired --dry-run",
    "stats",
    "doctor",
];

/// A question on one table.
struct Asked {
    seen: Seen,
    took: Vec<Duration>,
    run: Run,
}

pub(crate) async fn run(bases: [&Base; 2], watch: &mut Watch, trial: bool) -> Result<Vec<Goal>> {
    let [small, big] = bases;
    let mut table = Table::new(
        "Questions: pages touched on a tenth of the table and on all of it; then, of all of it: output, time (start of \
         the program included, median), peak memory, the statement that touched most and how",
        [
            "idemctl ...",
            "pages, tenth",
            "pages",
            "",
            "lines",
            "time",
            "memory",
            "plan",
        ],
    );
    let (mut growing, mut memory): (Vec<&str>, f64) = (Vec::new(), 0.0);
    for question in QUESTIONS {
        let less = ask(small, watch, question, trial).await?;
        let more = ask(big, watch, question, trial).await?;
        let grows = grows(less.seen.pages, more.seen.pages);
        if grows {
            growing.push(question);
        }
        let ratio =
            f64::from(u32::try_from(more.run.peak_kb)?) / f64::from(u32::try_from(less.run.peak_kb.max(1))?);
        memory = memory.max(ratio);
        table.row([
            (*question).to_owned(),
            less.seen.pages.to_string(),
            more.seen.pages.to_string(),
            if grows { "grows" } else { "flat" }.to_owned(),
            more.run.lines.to_string(),
            median(&more.took, ms),
            format!("{} MB", more.run.peak_kb / 1024),
            more.seen.plan,
        ]);
    }
    table.print();
    for question in &growing {
        println!("grows: idemctl {question}");
    }
    let count = u32::try_from(growing.len())?;
    Ok(vec![
        Goal::of(
            "questions whose pages grow with the table",
            "0",
            Some(f64::from(count)),
            |found| Some(found == 0.0),
        ),
        Goal::of(
            "peak memory of a question, all of the table : a tenth",
            "<= 1.2",
            (memory > 0.0).then_some(memory),
            |found| Some(found <= 1.2),
        ),
    ])
}

pub(crate) fn grows(less: u64, more: u64) -> bool {
    more > less + SLACK
        && f64::from(u32::try_from(more).unwrap_or(u32::MAX))
            > FLAT * f64::from(u32::try_from(less).unwrap_or(u32::MAX))
}

async fn ask(base: &Base, watch: &mut Watch, question: &str, trial: bool) -> Result<Asked> {
    let question = question
        .replace("{ID}", &base.id())
        .replace("{CURSOR}", &base.cursor);
    let args: Vec<&str> = question.split(' ').collect();
    watch.start(&base.admin, base.database).await?;
    let mut run = program::run(&base.url, &args)?;
    let seen = watch.stop(&base.admin, base.database).await?;
    let mut took = Vec::new();
    for _ in 0..if trial { 1 } else { 3 } {
        run = program::run(&base.url, &args)?;
        took.push(run.took);
    }
    Ok(Asked { seen, took, run })
}

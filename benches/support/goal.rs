//! The project's goals for speed and size, and how far they are met.

/// One goal, and what was found.
pub(crate) struct Goal {
    what: String,
    wanted: &'static str,
    found: String,
    /// `None`: it could not be measured, or there is nothing to judge.
    met: Option<bool>,
}

impl Goal {
    /// `found` is `None` where it could not be measured; `judge` says `None` where there is no goal.
    pub(crate) fn of(
        what: impl Into<String>,
        wanted: &'static str,
        found: Option<f64>,
        judge: impl Fn(f64) -> Option<bool>,
    ) -> Self {
        Self {
            what: what.into(),
            wanted,
            met: found.and_then(judge),
            found: found.map_or_else(|| "not measured".to_owned(), |found| format!("{found:.2}")),
        }
    }
}

/// Prints the verdicts. A trial is too short to judge by.
pub(crate) fn print(goals: &[Goal], trial: bool) {
    println!("\n| goal | wanted | found | |\n| --- | --- | --- | --- |");
    for goal in goals {
        let verdict = match goal.met.filter(|_| !trial) {
            Some(true) => "met",
            Some(false) => "**not met**",
            None if trial => "not judged in a trial",
            None => "",
        };
        println!("| {} | {} | {} | {verdict} |", goal.what, goal.wanted, goal.found);
    }
}

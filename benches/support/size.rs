//! How big the table is to be.

use idemctl::ops::migrate::{MAX_PARTITIONS, MIN_PARTITIONS};

use crate::Result;

/// From the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rows: u32,
    /// `None`: a plain table.
    pub(crate) partitions: Option<u32>,
}

impl Size {
    /// `--rows N` and `--partitions N`. Cargo adds `--bench`.
    pub(crate) fn from_args(rows: u32) -> Result<Self> {
        let mut size = Self {
            rows,
            partitions: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut number = || -> Result<u32> {
                let text = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
                let number = text.replace('_', "").parse();
                Ok(number.map_err(|e| format!("{arg} {text}: {e}"))?)
            };
            match arg.as_str() {
                "--rows" => size.rows = number()?,
                "--partitions" => size.partitions = Some(number()?),
                "--bench" => {}
                _ => {
                    return Err(
                        format!("unknown argument {arg:?}; --rows N and --partitions N are known").into(),
                    );
                }
            }
        }
        if !(1_000..=100_000_000).contains(&size.rows) {
            return Err(format!("--rows is {}; 1,000 to 100,000,000 are allowed", size.rows).into());
        }
        if size
            .partitions
            .is_some_and(|n| !(MIN_PARTITIONS..=MAX_PARTITIONS).contains(&n))
        {
            return Err(format!("--partitions: {MIN_PARTITIONS} to {MAX_PARTITIONS} are allowed").into());
        }
        Ok(size)
    }
}

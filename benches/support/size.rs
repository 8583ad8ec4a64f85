//! How big the table is to be, and in how many partitions.

use idemctl::ops::migrate::MAX_PARTITIONS;

use crate::Result;

/// Partitions that are measured unless told: after the plain table.
const PARTITIONS: u32 = 16;

/// From the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rows: u32,
    /// `None`: both a plain table and one in partitions.
    partitions: Option<u32>,
}

impl Size {
    /// `--rows N` and `--partitions N`, where 1 is a plain table. Cargo adds `--bench`.
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
            .is_some_and(|n| !(1..=MAX_PARTITIONS).contains(&n))
        {
            return Err(format!("--partitions: 1 to {MAX_PARTITIONS} are allowed").into());
        }
        Ok(size)
    }

    /// What is to be measured, one after the other: partitions by a hash of the client, or `None` for a plain table.
    pub(crate) fn variants(self) -> Vec<Option<u32>> {
        match self.partitions {
            None => vec![None, Some(PARTITIONS)],
            Some(1) => vec![None],
            Some(n) => vec![Some(n)],
        }
    }
}

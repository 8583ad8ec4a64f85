//! This program once more, as a child process that connects in the same way.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::{Color, GlobalArgs};
use crate::exit::{CliError, Exit, Result};
use crate::settings::show_duration;

/// What is run: a program, its arguments, and what its environment has besides ours.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
}

impl Own {
    /// The subcommand with the options of every command that this process was given, save those of output and logs.
    pub(crate) fn new(subcommand: &str, global: &GlobalArgs) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(|error| CliError::new(Exit::Other, format!("couldn't find this program: {error}")))?;
        let mut own = Self {
            program,
            args: vec![subcommand.into()],
            env: Vec::new(),
        };
        own.take(global);
        Ok(own)
    }

    pub(crate) fn arg(&mut self, arg: impl Into<OsString>) {
        self.args.push(arg.into());
    }

    fn take(&mut self, global: &GlobalArgs) {
        let GlobalArgs {
            database_url,
            config,
            schema,
            connect_timeout,
            statement_timeout,
            lock_timeout,
            output: _,
            color,
            log_format: _,
            verbose: _,
            quiet: _,
        } = global;
        // Not as an argument: it may hold a password, and everybody may read those.
        if let Some(url) = database_url {
            self.env.push(("IDEMCTL_DATABASE_URL".into(), url.into()));
        }
        if let Some(config) = config {
            self.arg("--config");
            self.arg(config);
        }
        if let Some(schema) = schema {
            self.arg("--schema");
            self.arg(schema);
        }
        let timeouts = [
            ("--connect-timeout", connect_timeout),
            ("--statement-timeout", statement_timeout),
            ("--lock-timeout", lock_timeout),
        ];
        for (name, value) in timeouts {
            if let Some(value) = value {
                self.arg(name);
                self.arg(show_duration(*value));
            }
        }
        match color {
            Color::Auto => {}
            Color::Always => self.arg("--color=always"),
            Color::Never => self.arg("--color=never"),
        }
    }
}

//! `idemctl top` in a real terminal.

mod ending;
mod keys;
mod view;

use crate::cli::fixture::{Cli, filled};
use crate::support::Tmux;

/// The demo's rows on the screen of a terminal of 80x24, looked at ten times a second.
pub(crate) async fn on_screen(env: &[(&str, &str)], more: &[&str]) -> (Cli, Tmux) {
    let cli = filled().await;
    let tmux = Tmux::start(80, 24).await;
    show(&cli, &tmux, env, more).await;
    (cli, tmux)
}

async fn show(cli: &Cli, tmux: &Tmux, env: &[(&str, &str)], more: &[&str]) {
    let args = [&["top", "--interval", "100ms"], more].concat();
    tmux.run(&cli.db.url, env, &args).await;
    tmux.shows("> shop-9").await;
}

//! The README's session with curl.

use std::path::Path;

use super::Server;
use crate::protocol::Table;
use crate::support::{Run, require_program};

/// The lines of the block that is marked as the session, and the status that each line's comment promises.
fn session() -> Vec<(String, Vec<String>)> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, block) = readme.split_once("```sh session\n").expect("a session");
    let (block, _) = block.split_once("```").unwrap();
    block
        .lines()
        .map(|line| {
            let (command, comment) = line.split_once(" # ").expect("what is to be expected");
            let promised = comment.split(", ").map(str::to_owned).collect();
            (command.trim().to_owned(), promised)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_goes_as_promised() {
    require_program("curl", "curl");
    let table = Table::new().await;
    let provider = Server::start("provider", &["--delay", "1000"]).await;
    let service = Server::payments(&table, &provider, &[]).await;
    let mut script = String::new();
    for (command, promised) in session() {
        let here = command
            .replace("http://127.0.0.1:8080", &service.url)
            .replace("http://127.0.0.1:9080", &provider.url);
        // Functions and variables of earlier lines hold for later ones.
        let so_far = format!("{script}\n{here}\nwait");
        if promised == ["defined"] {
            script.push_str(&here);
            script.push('\n');
            continue;
        }
        let output = Run::new("/bin/sh", &["-c", &so_far]).spawn().wait().await.ok();
        for part in promised {
            assert!(output.contains(&part), "{command}: {part:?} in\n{output}");
        }
    }
    assert_eq!(
        super::charges(&provider, &super::order("shop-1", "order-1"))
            .await
            .len(),
        1
    );
    assert_eq!(
        super::charges(&provider, &super::order("shop-2", "order-1"))
            .await
            .len(),
        1
    );
}

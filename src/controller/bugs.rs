//! A panic is a bug of ours. It costs what was being done, and nobody else.

use futures::FutureExt as _;
use std::any::Any;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use tracing::error;

/// So much of what a panic says ends up in a status.
const LONGEST: usize = 300;

/// Does something to its end. If it panics, the error says so; how far it came nobody knows then.
///
/// What a panic leaves behind is not looked at again: whoever calls this lets go of what was under way and reads
/// anew what became of it.
pub async fn caught<T>(what: impl Display, doing: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(doing).catch_unwind().await.map_err(|panic| {
        let message = format!("a bug in this program: {}", said(&*panic));
        error!("{what}: {message}");
        message
    })
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it did not say what").chars().take(LONGEST).collect()
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_panic_says_is_kept_and_bounded() {
        assert_eq!(caught("x", async { 1 }).await, Ok(1));
        let number = 7;
        let said = caught("x", async { panic!("number {number}") }).await;
        assert_eq!(said, Err::<(), _>("a bug in this program: number 7".to_owned()));
        let said = caught("x", async { panic!("words") }).await;
        assert_eq!(said, Err::<(), _>("a bug in this program: words".to_owned()));
        let said = caught("x", async { std::panic::panic_any(7_u8) }).await;
        assert_eq!(said, Err::<(), _>("a bug in this program: it did not say what".to_owned()));
        let said = caught("x", async { panic!("{}", "é".repeat(1000)) }).await;
        assert_eq!(said.map_err(|said| said.chars().count()), Err::<(), _>(23 + LONGEST));
    }
}

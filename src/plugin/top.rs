//! `top`: status and the last moves, live. Drawn when something changes, and once a second.

use super::connect::Cluster;
use super::lease::Controller;
use super::show::{Show as _, Style};
use super::snapshot::{Snapshot, observer};
use super::{history, status};
use anyhow::{Result, ensure};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style as Look};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Borders, Paragraph};
use ratatui::{DefaultTerminal, Frame};
use std::io::{IsTerminal as _, stdin, stdout};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How often ages are drawn anew, and at most how often changes are.
const TICK: Duration = Duration::from_secs(1);
const SPACING: Duration = Duration::from_millis(100);
/// How often the Lease is looked at.
const LEASE: Duration = Duration::from_secs(2);
const HELP: &str = " q quit   ↑ ↓ PgUp PgDn scroll   w wide ";

/// Runs until somebody has seen enough.
pub async fn watch(cluster: &Cluster, name: Option<&str>) -> Result<()> {
    ensure!(
        stdin().is_terminal() && stdout().is_terminal(),
        "top needs a terminal; `kubectl netip status` prints the same once"
    );
    let (mut world, controller) = tokio::join!(observer(cluster), Controller::ask(cluster));
    let observer = world.as_mut().map_err(|error| anyhow::anyhow!("{error:#}"))?;
    Snapshot::of(observer.world().clone(), controller.clone()).named(name)?;
    let (tell, mut leader) = watch::channel(controller);
    let mut terminal = ratatui::try_init()?;
    let mut keys = keys();
    let mut view = View { name, scroll: 0, wide: false };
    let looking = async {
        loop {
            view.draw(&mut terminal, observer.world(), &leader.borrow_and_update())?;
            // A storm of changes is drawn as one.
            tokio::time::sleep(SPACING).await;
            tokio::select! {
                key = keys.recv() => match key {
                    Some(key) if view.take(key) => {}
                    _ => return Ok(()),
                },
                () = observer.next() => {}
                _ = leader.changed() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    };
    let done = tokio::select! {
        done = looking => done,
        () = follow_the_lease(cluster, tell) => Ok(()),
    };
    ratatui::try_restore()?;
    done
}

async fn follow_the_lease(cluster: &Cluster, tell: watch::Sender<Controller>) {
    while !tell.is_closed() {
        tokio::time::sleep(LEASE).await;
        tell.send_replace(Controller::ask(cluster).await);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Wide,
    Scroll(i32),
    /// The terminal has another size, say.
    Redraw,
}

/// Keys, read by a thread: a terminal cannot be awaited.
fn keys() -> mpsc::Receiver<Key> {
    let (send, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if let Some(key) = key_of(&event)
                && send.blocking_send(key).is_err()
            {
                return;
            }
        }
    });
    keys
}

fn key_of(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return matches!(event, Event::Resize(..)).then_some(Key::Redraw) };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
        KeyCode::Char('w') => Key::Wide,
        KeyCode::Up | KeyCode::Char('k') => Key::Scroll(-1),
        KeyCode::Down | KeyCode::Char('j') => Key::Scroll(1),
        KeyCode::PageUp => Key::Scroll(-20),
        KeyCode::PageDown => Key::Scroll(20),
        _ => return None,
    })
}

struct View<'n> {
    name: Option<&'n str>,
    scroll: u16,
    wide: bool,
}

impl View<'_> {
    /// Whether it goes on.
    fn take(&mut self, key: Key) -> bool {
        match key {
            Key::Quit => return false,
            Key::Wide => self.wide = !self.wide,
            Key::Scroll(rows) => {
                self.scroll = self.scroll.saturating_add_signed(i16::try_from(rows).unwrap_or_default());
            }
            Key::Redraw => {}
        }
        true
    }

    fn draw(
        &mut self,
        terminal: &mut DefaultTerminal,
        world: &mut plan::World,
        controller: &Controller,
    ) -> Result<()> {
        // The world is lent, not copied: it may be a large one.
        let snapshot = Snapshot::of(std::mem::take(world), controller.clone());
        // An allocation that is gone is no reason to end: it may come back.
        let names = snapshot.named(self.name).unwrap_or_default();
        let style = Style { colour: true, wide: self.wide };
        let tree = status::report(&snapshot, names.clone()).text(style);
        let moves = history::report(&snapshot, names).text(style);
        let title = title(controller, snapshot.now);
        *world = snapshot.world;
        terminal.draw(|frame| self.render(frame, &title, &tree, &moves))?;
        Ok(())
    }

    fn render(&mut self, frame: &mut Frame<'_>, title: &str, tree: &str, moves: &str) {
        let (tree, moves) = (coloured(tree), coloured(moves));
        let below = u16::try_from(moves.height()).unwrap_or(u16::MAX).clamp(1, 11) + 2;
        let [above, below] =
            Layout::vertical([Constraint::Min(3), Constraint::Length(below)]).areas(frame.area());
        let rows = u16::try_from(tree.height()).unwrap_or(u16::MAX);
        self.scroll = self.scroll.min(rows.saturating_sub(above.height.saturating_sub(2)));
        let block = |title: &str| Block::new().borders(Borders::TOP).title(title.to_owned());
        let bottom = Line::from(HELP).right_aligned();
        frame.render_widget(Paragraph::new(tree).scroll((self.scroll, 0)).block(block(title)), above);
        let last =
            Block::new().borders(Borders::TOP | Borders::BOTTOM).title(" last moves ").title_bottom(bottom);
        frame.render_widget(Paragraph::new(moves).block(last), below);
    }
}

fn title(controller: &Controller, now: Timestamp) -> String {
    let clock = now.to_zoned(TimeZone::UTC).strftime("%H:%M:%S UTC").to_string();
    match &controller.holder {
        Some(_) if controller.alive => format!(" kubectl netip   {clock}   leader {} ", controller.pod()),
        _ => format!(" kubectl netip   {clock} "),
    }
}

/// Text with the colours of [`Style`] as a terminal library wants it.
fn coloured(text: &str) -> Text<'static> {
    let line = |line: &str| {
        let mut look = Look::new();
        let spans = line.split("\x1b[").enumerate().map(|(number, part)| {
            let (code, rest) =
                if number == 0 { ("0", part) } else { part.split_once('m').unwrap_or(("0", part)) };
            look = look_of(code);
            Span::styled(rest.to_owned(), look)
        });
        spans.filter(|span| !span.content.is_empty()).collect::<Line<'_>>()
    };
    text.lines().map(line).collect()
}

fn look_of(code: &str) -> Look {
    let look = Look::new();
    match code {
        "1" => look.add_modifier(Modifier::BOLD),
        "2" => look.add_modifier(Modifier::DIM),
        "31" => look.fg(Color::Red),
        "32" => look.fg(Color::Green),
        "33" => look.fg(Color::Yellow),
        _ => look,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_kept() {
        let style = Style { colour: true, wide: false };
        let text = coloured(&format!("on node-1  {}  for 3s\nplain", style.good("Attached")));
        let spans: Vec<(&str, Option<Color>)> =
            text.lines[0].spans.iter().map(|span| (span.content.as_ref(), span.style.fg)).collect();
        assert_eq!(spans, [("on node-1  ", None), ("Attached", Some(Color::Green)), ("  for 3s", None)]);
        assert_eq!(text.lines[1].spans[0].content, "plain");
    }

    #[test]
    fn keys_scroll_and_end() {
        let mut view = View { name: None, scroll: 0, wide: false };
        assert!(view.take(Key::Scroll(-1)) && view.scroll == 0);
        assert!(view.take(Key::Scroll(20)) && view.scroll == 20);
        assert!(view.take(Key::Wide) && view.wide);
        assert!(!view.take(Key::Quit));
    }
}

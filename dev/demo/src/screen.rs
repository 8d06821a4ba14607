//! Where the story is told: above a table that lives, or line by line where there is no terminal.

use crate::line::{Line, Tone};
use crate::record::Recorder;
use anyhow::Result;
use ratatui::backend::CrosstermBackend;
use ratatui::text::Text;
use ratatui::widgets::{Paragraph, Widget as _, Wrap};
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::io::{IsTerminal as _, Stdout, stdin, stdout};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines of the table: nodes, a head, addresses, the leader, the last event.
pub const TABLE_LINES: u16 = 13;

/// One story, told by one teller and a table that another task keeps up to date.
#[derive(Clone)]
pub struct Screen(Arc<Mutex<Inner>>);

struct Inner {
    terminal: Option<Terminal<CrosstermBackend<Stdout>>>,
    table: Vec<Line>,
    recorder: Option<Recorder>,
}

impl Screen {
    /// Live, if this is a terminal; recording, if that was asked for.
    pub fn new(recorder: Option<Recorder>) -> Self {
        let live = stdout().is_terminal() && stdin().is_terminal();
        let options = TerminalOptions { viewport: Viewport::Inline(TABLE_LINES) };
        // A terminal that does not say where its cursor is gets plain lines.
        let terminal =
            live.then(|| Terminal::with_options(CrosstermBackend::new(stdout()), options).ok()).flatten();
        Self(Arc::new(Mutex::new(Inner { terminal, table: Vec::new(), recorder })))
    }

    /// Whether somebody looks on, now or later.
    pub fn is_watched(&self) -> bool {
        let inner = self.inner();
        inner.terminal.is_some() || inner.recorder.is_some()
    }

    /// Begins an act.
    pub fn act(&self, title: &str) -> Result<()> {
        self.tell(Tone::Told, "")?;
        self.tell(Tone::Title, &format!("── {title} ──"))
    }

    pub fn say(&self, text: &str) -> Result<()> {
        self.tell(Tone::Told, text)
    }

    pub fn command(&self, text: &str) -> Result<()> {
        self.tell(Tone::Command, &format!("$ {text}"))
    }

    pub fn output(&self, text: &str) -> Result<()> {
        text.trim_end().lines().try_for_each(|line| self.tell(Tone::Output, &format!("  {line}")))
    }

    /// Something that was checked, and is so.
    pub fn checked(&self, text: &str) -> Result<()> {
        self.tell(Tone::Checked, &format!("✓ {text}"))
    }

    pub fn wrong(&self, text: &str) -> Result<()> {
        self.tell(Tone::Wrong, &format!("✗ {text}"))
    }

    fn tell(&self, tone: Tone, text: &str) -> Result<()> {
        let line = Line::new(tone, text);
        let mut inner = self.inner();
        if let Some(recorder) = &mut inner.recorder {
            recorder.told(&line);
        }
        let Some(terminal) = &mut inner.terminal else {
            println!("{text}");
            return Ok(());
        };
        let width = usize::from(terminal.size()?.width.max(1));
        let rows = u16::try_from(text.chars().count().div_ceil(width).max(1)).unwrap_or(u16::MAX);
        let paragraph = Paragraph::new(ratatui::text::Line::from(&line)).wrap(Wrap { trim: false });
        terminal.insert_before(rows, |buffer| paragraph.render(buffer.area, buffer))?;
        inner.draw()
    }

    /// The table as it is now. Without a terminal it is only kept.
    pub fn show(&self, table: Vec<Line>) -> Result<()> {
        let mut inner = self.inner();
        if inner.table == table {
            return Ok(());
        }
        if let Some(recorder) = &mut inner.recorder {
            recorder.shown(&table);
        }
        inner.table = table;
        inner.draw()
    }

    /// Prints the table where it does not live anyway.
    pub fn print_table(&self) {
        let inner = self.inner();
        let lines = inner.table.iter().filter(|_| inner.terminal.is_none());
        for line in lines.filter(|line| !line.text.is_empty()) {
            println!("  {}", line.text);
        }
    }

    /// The picture, if one was taken.
    pub fn finish(&self) -> Result<()> {
        let mut inner = self.inner();
        if let Some(mut terminal) = inner.terminal.take() {
            // What comes next is printed below the table.
            let below = terminal.get_frame().area().bottom().saturating_sub(1);
            terminal.set_cursor_position((0, below))?;
            println!();
        }
        inner.recorder.take().map_or(Ok(()), Recorder::finish)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn draw(&mut self) -> Result<()> {
        let text: Text = self.table.iter().map(ratatui::text::Line::from).collect();
        if let Some(terminal) = &mut self.terminal {
            terminal.draw(|frame| frame.render_widget(Paragraph::new(text), frame.area()))?;
        }
        Ok(())
    }
}

//! A line of text with a tone, for a terminal, a pipe or a picture.

use ratatui::style::{Color, Modifier, Style};

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// The head of an act.
    Title,
    /// What is told.
    Told,
    /// A command as one would type it.
    Command,
    /// What it printed.
    Output,
    /// What was checked and found so.
    Checked,
    /// What is wrong.
    Wrong,
}

impl Tone {
    /// On a terminal.
    pub fn style(self) -> Style {
        let style = Style::new();
        match self {
            Self::Title => style.fg(Color::Cyan).add_modifier(Modifier::BOLD),
            Self::Told => style,
            Self::Command => style.fg(Color::Yellow),
            Self::Output => style.add_modifier(Modifier::DIM),
            Self::Checked => style.fg(Color::Green),
            Self::Wrong => style.fg(Color::Red),
        }
    }

    /// In a picture, on a dark ground.
    pub fn colour(self) -> &'static str {
        match self {
            Self::Title => "#56d4dd",
            Self::Told => "#d8dee9",
            Self::Command => "#f1ca6f",
            Self::Output => "#94a0b2",
            Self::Checked => "#8fd694",
            Self::Wrong => "#f28b82",
        }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub tone: Tone,
    pub text: String,
}

impl Line {
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { tone, text: text.into() }
    }
}

impl From<&Line> for ratatui::text::Line<'static> {
    fn from(line: &Line) -> Self {
        Self::styled(line.text.clone(), line.tone.style())
    }
}

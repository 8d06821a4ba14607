//! How things are shown: formats, colours, tables.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::io::IsTerminal as _;

/// How to show.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Show as JSON or YAML, or with everything that is known
    #[arg(short, long = "output", value_enum, global = true)]
    output: Option<Format>,
    /// When to colour. `auto`: on a terminal, unless `NO_COLOR` is set
    #[arg(long, value_enum, default_value_t = Colour::Auto, global = true)]
    color: Colour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Json,
    Yaml,
    Wide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Colour {
    Auto,
    Always,
    Never,
}

/// Something that can be shown.
pub trait Show: Serialize {
    /// For people; with a line end, or empty.
    fn text(&self, style: Style) -> String;
}

impl Output {
    pub fn print(&self, report: &impl Show) -> Result<()> {
        let text = match self.output {
            Some(Format::Json) => format!("{}\n", serde_json::to_string_pretty(report)?),
            Some(Format::Yaml) => serde_saphyr::to_string(report)?,
            Some(Format::Wide) | None => report.text(self.style()),
        };
        crate::cli::print(&text)
    }

    fn style(&self) -> Style {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let colour = match self.color {
            Colour::Auto => std::io::stdout().is_terminal() && !forbidden,
            Colour::Always => true,
            Colour::Never => false,
        };
        Style { colour, wide: self.output == Some(Format::Wide) }
    }
}

/// How text looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    pub colour: bool,
    pub wide: bool,
}

impl Style {
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub fn warn(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Columns as wide as what is in them. Nothing for no rows.
pub fn table<const N: usize>(header: [&str; N], rows: &[[String; N]], style: Style) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].len()]).max().unwrap_or_default()
    };
    let line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column))).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let body = rows.iter().map(|row| line(row.each_ref().map(String::as_str)));
    let lines: Vec<String> = std::iter::once(style.strong(&line(header))).chain(body).collect();
    format!("{}\n", lines.join("\n"))
}

/// `45s`, `12m`, `3h`, `9d`.
pub fn age(since: jiff::Timestamp, now: jiff::Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_what_is_in_it() {
        let rows = [["voice".to_owned(), "1".to_owned()], ["a".to_owned(), "2".to_owned()]];
        let text = table(["NAME", "N"], &rows, Style::default());
        assert_eq!(text, "NAME   N\nvoice  1\na      2\n");
        assert_eq!(table(["NAME", "N"], &[], Style::default()), "");
    }

    #[test]
    fn colours_are_there_when_they_are_asked_for() {
        let style = Style { colour: true, wide: false };
        assert_eq!(style.good("Ready"), "\x1b[32mReady\x1b[0m");
        assert_eq!(Style::default().good("Ready"), "Ready");
    }

    #[test]
    fn ages_are_short() {
        let at = |seconds| jiff::Timestamp::from_second(seconds).unwrap_or_default();
        let ages = [45, 119, 130, 7300, 200_000].map(|seconds| age(at(0), at(seconds)));
        assert_eq!(ages, ["45s", "119s", "2m", "2h", "2d"]);
        assert_eq!(age(at(10), at(0)), "0s", "clocks differ");
    }
}

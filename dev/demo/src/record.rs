//! An animated picture of the story: one SVG, no script, that any browser and any README shows.

use crate::line::Line;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Rows of what was told that are in sight, above the table.
const TOLD_ROWS: usize = 18;
const COLUMNS: usize = 112;
const CHARACTER: f64 = 7.6;
const ROW: f64 = 17.0;
const MARGIN: f64 = 14.0;
/// Waits are shortened to this: nobody watches a picture in which nothing happens.
const LONGEST: Duration = Duration::from_millis(1500);
/// How long the last picture stays.
const LAST: Duration = Duration::from_secs(6);

/// What is in sight at a moment.
struct Frame {
    at: Duration,
    told: Vec<Line>,
    table: Vec<Line>,
}

/// Takes frames.
pub struct Recorder {
    file: PathBuf,
    told: Vec<Line>,
    table: Vec<Line>,
    frames: Vec<Frame>,
    last: Instant,
    at: Duration,
}

impl Recorder {
    pub fn new(file: PathBuf) -> Self {
        let (told, table, frames) = (Vec::new(), Vec::new(), Vec::new());
        Self { file, told, table, frames, last: Instant::now(), at: Duration::ZERO }
    }

    pub fn told(&mut self, line: &Line) {
        self.told.extend(broken(line));
        let surplus = self.told.len().saturating_sub(TOLD_ROWS);
        self.told.drain(..surplus);
        self.take();
    }

    pub fn shown(&mut self, table: &[Line]) {
        self.table = table.to_vec();
        self.take();
    }

    fn take(&mut self) {
        self.at += self.last.elapsed().min(LONGEST);
        self.last = Instant::now();
        let frame = Frame { at: self.at, told: self.told.clone(), table: self.table.clone() };
        // What follows at once is the same picture to the eye.
        match self.frames.last_mut() {
            Some(before) if self.at.saturating_sub(before.at) < Duration::from_millis(60) => {
                *before = Frame { at: before.at, ..frame };
            }
            _ => self.frames.push(frame),
        }
    }

    /// Writes the picture.
    pub fn finish(self) -> Result<()> {
        let svg = picture(&self.frames);
        std::fs::write(&self.file, svg).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// A line as rows of the picture.
fn broken(line: &Line) -> Vec<Line> {
    let characters: Vec<char> = line.text.chars().collect();
    let rows = characters.chunks(COLUMNS).map(|row| Line::new(line.tone, row.iter().collect::<String>()));
    let rows: Vec<Line> = rows.collect();
    if rows.is_empty() { vec![line.clone()] } else { rows }
}

#[allow(clippy::cast_precision_loss)] // rows and columns are small
fn picture(frames: &[Frame]) -> String {
    let rows = TOLD_ROWS + usize::from(crate::screen::TABLE_LINES) + 1;
    let (width, height) = (COLUMNS as f64 * CHARACTER + 2.0 * MARGIN, rows as f64 * ROW + 2.0 * MARGIN);
    let whole = frames.last().map_or(LAST, |frame| frame.at + LAST).as_secs_f64();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         role=\"img\" aria-label=\"make demo, recorded\">\n<style>\n\
         text {{ font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }}\n\
         .frame {{ visibility: hidden; animation: {whole:.2}s steps(1, end) infinite }}\n"
    );
    for (number, frame) in frames.iter().enumerate() {
        let from = frame.at.as_secs_f64() / whole * 100.0;
        let to = frames.get(number + 1).map_or(100.0, |next| next.at.as_secs_f64() / whole * 100.0);
        // Where animation is off, the last frame is the picture.
        let rest = if number + 1 == frames.len() { "visibility: visible; " } else { "" };
        let _ = writeln!(
            svg,
            "#f{number} {{ {rest}animation-name: k{number} }} @keyframes k{number} {{ 0% {{ visibility: {} }} \
             {from:.3}% {{ visibility: visible }} {to:.3}%, 100% {{ visibility: hidden }} }}",
            if number == 0 { "visible" } else { "hidden" }
        );
    }
    let _ = writeln!(
        svg,
        "</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1b2028\"/>\n\
         <line x1=\"{MARGIN}\" x2=\"{:.0}\" y1=\"{y:.0}\" y2=\"{y:.0}\" stroke=\"#39424f\"/>",
        width - MARGIN,
        y = MARGIN + TOLD_ROWS as f64 * ROW + ROW / 2.0,
    );
    for (number, frame) in frames.iter().enumerate() {
        let _ = write!(svg, "<g id=\"f{number}\" class=\"frame\">");
        let told = frame.told.iter().enumerate();
        let table = frame.table.iter().enumerate().map(|(row, line)| (row + TOLD_ROWS + 1, line));
        for (row, line) in told.chain(table).filter(|(_, line)| !line.text.is_empty()) {
            let y = MARGIN + (row as f64 + 0.8) * ROW;
            let _ = write!(
                svg,
                "<text x=\"{MARGIN}\" y=\"{y:.0}\" fill=\"{}\">{}</text>",
                line.tone.colour(),
                escaped(&line.text)
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Tone;

    #[test]
    fn a_long_line_is_broken_and_what_svg_reads_is_escaped() {
        let line = Line::new(Tone::Told, "x".repeat(COLUMNS + 1));
        assert_eq!(broken(&line).iter().map(|row| row.text.len()).collect::<Vec<_>>(), [COLUMNS, 1]);
        let frame =
            Frame { at: Duration::ZERO, told: vec![Line::new(Tone::Told, "a < b & c")], table: Vec::new() };
        let svg = picture(&[frame]);
        assert!(svg.contains("a &lt; b &amp; c"), "{svg}");
    }
}

//! Reads scenarios. What each word means is in `README.md` beside this file.

use std::net::IpAddr;

/// One named scenario: stages that follow one another.
pub struct Scenario {
    pub name: String,
    pub stages: Vec<Stage>,
}

/// A change of the world and what the planner has to make of it.
pub struct Stage {
    /// The words behind `then`; none in the first stage.
    pub then: Line,
    /// What the world looks like, or what changes in it.
    pub world: Vec<Line>,
    /// Whether the plans are carried out until there is nothing left to do.
    pub to_rest: bool,
    /// What the plan has to be.
    pub expected: Vec<Line>,
}

/// The words of one line.
#[derive(Clone, Default)]
pub struct Line {
    pub number: usize,
    pub words: Vec<String>,
}

impl Line {
    fn new(number: usize, text: &str) -> Result<Self, String> {
        let mut words = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (word, tail) = match rest.strip_prefix('"') {
                Some(quoted) => {
                    quoted.split_once('"').ok_or_else(|| format!("line {number}: a quote is not closed"))?
                }
                // JSON may contain blanks, so it is always the last word.
                None if rest.starts_with('{') => (rest, ""),
                None => rest.split_once(' ').unwrap_or((rest, "")),
            };
            words.push(word.to_owned());
            rest = tail.trim_start();
        }
        Ok(Self { number, words })
    }

    /// Reads the line word by word; whatever goes wrong is told with the line's number.
    pub fn read<T>(&self, read: impl FnOnce(&mut Words<'_>) -> Result<T, String>) -> Result<T, String> {
        let mut words = Words { left: &self.words };
        let result = read(&mut words).and_then(|value| words.end().map(|()| value));
        result.map_err(|why| format!("line {}: `{}`: {why}", self.number, self.words.join(" ")))
    }
}

/// The words of a line that are not read yet.
pub struct Words<'l> {
    left: &'l [String],
}

impl<'l> Words<'l> {
    pub fn next(&mut self) -> Option<&'l str> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        Some(first)
    }

    pub fn need(&mut self, what: &str) -> Result<&'l str, String> {
        self.next().ok_or_else(|| format!("{what} is missing"))
    }

    pub fn peek(&self) -> Option<&'l str> {
        self.left.first().map(String::as_str)
    }

    /// Takes the next word if it is this one.
    pub fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        if is {
            self.next();
        }
        is
    }

    pub fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.next() {
            Some(found) if found == word => Ok(()),
            Some(found) => Err(format!("`{word}` expected, not `{found}`")),
            None => Err(format!("`{word}` is missing")),
        }
    }

    pub fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        let word = self.need("a number")?;
        word.parse().map_err(|_| format!("`{word}` is no number"))
    }

    pub fn address(&mut self) -> Result<IpAddr, String> {
        let word = self.need("an address")?;
        address(word).ok_or_else(|| format!("`{word}` is no address"))
    }

    /// `30s` or `5m`, in seconds.
    pub fn seconds(&mut self) -> Result<i64, String> {
        let word = self.need("a time such as 30s")?;
        seconds(word).ok_or_else(|| format!("`{word}` is no time such as 30s or 5m"))
    }

    /// `30s ago`, in seconds.
    pub fn ago(&mut self) -> Result<i64, String> {
        let seconds = self.seconds()?;
        self.expect("ago")?;
        Ok(seconds)
    }

    fn end(&self) -> Result<(), String> {
        self.peek().map_or(Ok(()), |word| Err(format!("`{word}` is not understood here")))
    }
}

/// `.7` is 203.0.113.7; other addresses are written in full.
pub fn address(word: &str) -> Option<IpAddr> {
    let full = word.strip_prefix('.').map(|last| format!("203.0.113.{last}"));
    full.as_deref().unwrap_or(word).parse().ok()
}

pub fn short(address: IpAddr) -> String {
    let text = address.to_string();
    text.strip_prefix("203.0.113").map_or(text.clone(), str::to_owned)
}

fn seconds(word: &str) -> Option<i64> {
    let (number, factor) = match word.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (word.strip_suffix('s')?, 1),
    };
    number.parse::<i64>().ok().map(|number| number * factor)
}

/// All scenarios of a file.
pub fn scenarios(text: &str) -> Result<Vec<Scenario>, String> {
    let mut all: Vec<Scenario> = Vec::new();
    let mut expecting = false;
    for (number, text) in text.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(name) = text.strip_prefix("scenario ") {
            all.push(Scenario { name: name.trim().to_owned(), stages: vec![Stage::new(Line::default())] });
            expecting = false;
            continue;
        }
        let line = Line::new(number, text)?;
        let scenario = all.last_mut().ok_or_else(|| format!("line {number}: `scenario` expected"))?;
        let Some(stage) = scenario.stages.last_mut() else {
            continue;
        };
        match text {
            "----" | "====" if expecting => return Err(format!("line {number}: one `{text}` per stage")),
            "----" | "====" => {
                expecting = true;
                stage.to_rest = text == "====";
            }
            _ if line.words.first().is_some_and(|word| word == "then") => {
                if !expecting {
                    return Err(format!("line {number}: the stage before `then` expects nothing"));
                }
                scenario.stages.push(Stage::new(line));
                expecting = false;
            }
            _ if expecting => stage.expected.push(line),
            _ => stage.world.push(line),
        }
    }
    complete(&all)?;
    Ok(all)
}

impl Stage {
    fn new(then: Line) -> Self {
        Self { then, world: Vec::new(), to_rest: false, expected: Vec::new() }
    }
}

fn complete(all: &[Scenario]) -> Result<(), String> {
    for scenario in all {
        if scenario.stages.iter().any(|stage| stage.expected.is_empty()) {
            return Err(format!(
                "{}: a stage expects nothing; write `nothing` if that is meant",
                scenario.name
            ));
        }
    }
    Ok(())
}

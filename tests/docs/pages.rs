//! What the pages show: blocks of code, and the commands in them.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};

pub const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A block of code on a page.
#[derive(Clone, Debug)]
pub struct Block {
    /// The page, by its path in the repository.
    pub page: String,
    /// The line that it begins on.
    pub line: usize,
    /// What the fence says, or `indented`.
    pub language: String,
    /// The last line of text above it.
    pub above: String,
    pub text: String,
}

/// A command that a page shows.
#[derive(Clone, Debug)]
pub struct Command {
    pub page: String,
    pub line: usize,
    /// The page says that it is not run.
    pub marked: bool,
    pub text: String,
}

/// Where it is, for messages.
impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.page, self.line, self.text)
    }
}

/// Every page that people read, with its path.
pub fn pages() -> Result<Vec<(String, String)>> {
    let mut files: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/chart/README.md", "examples/README.md"]
            .map(|name| Path::new(ROOT).join(name))
            .to_vec();
    collect(&Path::new(ROOT).join("docs"), &mut files)?;
    files.sort();
    let page = |file: PathBuf| -> Result<(String, String)> {
        let name = file.strip_prefix(ROOT)?.display().to_string();
        Ok((name, std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?))
    };
    files.into_iter().map(page).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    Ok(())
}

/// Every block of every page.
pub fn all_blocks() -> Result<Vec<Block>> {
    let pages = pages()?;
    pages.iter().map(|(page, text)| blocks(page, text)).collect::<Result<Vec<_>>>().map(|all| all.concat())
}

/// The blocks of a page: fenced ones, and indented ones outside lists.
pub fn blocks(page: &str, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let (mut above, mut in_list, mut blank) = (String::new(), false, true);
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let mut block = Block {
            page: page.to_owned(),
            line: number + 1,
            language: "indented".to_owned(),
            above: above.clone(),
            text: String::new(),
        };
        if let Some(language) = line.trim_start().strip_prefix("```") {
            language.trim().clone_into(&mut block.language);
            let mut closed = false;
            for (_, line) in lines.by_ref() {
                closed = line.trim() == "```";
                if closed {
                    break;
                }
                block.text.push_str(line.get(indent..).unwrap_or_default());
                block.text.push('\n');
            }
            ensure!(closed, "{page}:{}: a block that does not end", block.line);
            blocks.push(block);
        } else if indent >= 4 && blank && !in_list {
            block.text = format!("{}\n", &line[4..]);
            while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with("    ")) {
                block.text.push_str(&line[4..]);
                block.text.push('\n');
            }
            blocks.push(block);
        } else if !line.trim().is_empty() {
            line.clone_into(&mut above);
            // A list goes on until a line begins at the margin that is no item of it.
            if indent == 0 {
                in_list = line.starts_with("- ")
                    || line.split_once(". ").is_some_and(|(n, _)| n.parse::<u32>().is_ok());
            }
        }
        blank = line.trim().is_empty();
    }
    Ok(blocks)
}

/// Every command of every page, in order.
pub fn commands() -> Result<Vec<Command>> {
    Ok(all_blocks()?.iter().flat_map(commands_of).collect())
}

/// The commands of a block. In `bash` every line is one; elsewhere what follows a prompt; in an indented block
/// what begins with a program of ours or one that we need.
fn commands_of(block: &Block) -> Vec<Command> {
    let joined = block.text.replace("\\\n", " ");
    let marked = block.above.to_lowercase().contains("not run");
    let command = |line: &str| -> Option<String> {
        let line = line.trim();
        match block.language.as_str() {
            // A script, which is shown as a whole.
            "sh" | "bash" if block.text.starts_with("#!") => None,
            "sh" | "bash" => (!line.is_empty() && !line.starts_with('#')).then(|| line.to_owned()),
            "console" | "" => line.strip_prefix("$ ").map(str::to_owned),
            "indented" => PROGRAMS.contains(&program(line)).then(|| line.to_owned()),
            _ => None,
        }
    };
    let lines = joined.lines().filter_map(command);
    let tidy = |text: String| {
        text.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let (page, line) = (&block.page, block.line);
    lines.map(|text| Command { page: page.clone(), line, marked, text: tidy(text) }).collect()
}

/// Programs that begin a command in a block without a prompt.
const PROGRAMS: [&str; 6] = ["make", "kubectl", "kubectl-netip", "helm", "ip-address-controller", "cargo"];

/// The program that a command runs: its first word that sets no variable.
pub fn program(command: &str) -> &str {
    let sets = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| {
            name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_' || b.is_ascii_digit())
        })
    };
    command.split_whitespace().find(|word| !sets(word)).unwrap_or_default()
}

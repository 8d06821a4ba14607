//! `history`: the last moves of addresses.

use super::show::{Show, Style, table};
use super::snapshot::Snapshot;
use crds::Move;
use serde::Serialize;

/// Moves, newest first.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Report(Vec<Entry>);

#[derive(Debug, Serialize)]
struct Entry {
    allocation: String,
    #[serde(flatten)]
    moved: Move,
}

pub fn report(snapshot: &Snapshot, names: Vec<&str>) -> Report {
    let mut entries: Vec<Entry> = Vec::new();
    for name in names {
        let moves = snapshot.world.allocations[name].status.history.iter();
        entries.extend(moves.map(|moved| Entry { allocation: name.to_owned(), moved: moved.clone() }));
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.moved.when.0));
    Report(entries)
}

impl Show for Report {
    fn text(&self, style: Style) -> String {
        let rows: Vec<[String; 7]> = self.0.iter().map(row).collect();
        table(["WHEN", "ALLOCATION", "ADDRESS", "FROM", "TO", "CAUSE", "TOOK"], &rows, style)
    }
}

fn row(entry: &Entry) -> [String; 7] {
    let moved = &entry.moved;
    let node = |node: &Option<String>| node.clone().unwrap_or_else(|| "-".to_owned());
    [
        moved.when.0.to_string(),
        entry.allocation.clone(),
        moved.address.clone(),
        node(&moved.from),
        node(&moved.to),
        moved.cause.clone(),
        moved.duration.clone(),
    ]
}

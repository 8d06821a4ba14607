//! What a review costs: `make bench-webhook`.
//!
//! Each server runs in a process of its own, whose CPU time the kernel counts; the load comes from here.
//! Beside ours runs one that answers fixed bytes on the same TLS stack, so that figures of different
//! machines can be compared as ratios. With `--cluster` the same is measured through a real API server.

#![allow(clippy::cast_precision_loss, clippy::print_stdout)]

mod cluster_part;
mod load;
mod reviews;
mod servers;

use anyhow::{Context as _, Result};
use load::{Figures, Load};
use servers::{Kind, Server};

/// Indexed addresses.
const SIZES: [usize; 3] = [10, 1_000, 100_000];
const CONCURRENCIES: [usize; 3] = [1, 4, 16];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    match arguments.first().map(String::as_str) {
        Some("serve") => {
            let kind = Kind::parse(arguments.get(1).context("which server?")?)?;
            runtime.block_on(servers::serve(kind))
        }
        Some("--cluster") => runtime.block_on(cluster_part::run()),
        _ => runtime.block_on(run()),
    }
}

async fn run() -> Result<()> {
    let requests: usize = std::env::var("REQUESTS").ok().and_then(|text| text.parse().ok()).unwrap_or(4_000);
    println!("{requests} requests each; CPU of the server per 1,000 requests, latencies in microseconds\n");
    let head = ["case", "addresses", "conc.", "cpu s", "ratio", "p50", "p99", "ratio p50"];
    println!(
        "{:<22}{:>10}{:>6}{:>9}{:>7}{:>8}{:>8}{:>10}",
        head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7]
    );
    for case in reviews::CASES {
        for concurrency in CONCURRENCIES {
            let load = Load { path: case.path, body: (case.body)(), concurrency, requests };
            let fixed = measure(Kind::Fixed, &load).await?;
            print("fixed bytes", 0, concurrency, &fixed, &fixed);
            for size in SIZES {
                let ours = measure(Kind::Ours(size), &load).await?;
                print(case.name, size, concurrency, &ours, &fixed);
            }
        }
    }
    Ok(())
}

async fn measure(kind: Kind, load: &Load) -> Result<Figures> {
    let server = Server::start(kind).await?;
    load.run(&server).await
}

fn print(name: &str, size: usize, concurrency: usize, figures: &Figures, fixed: &Figures) {
    println!(
        "{name:<22}{size:>10}{concurrency:>6}{:>9.4}{:>7.2}{:>8}{:>8}{:>10.2}",
        figures.cpu_per_thousand,
        figures.cpu_per_thousand / fixed.cpu_per_thousand,
        figures.percentile(50).as_micros(),
        figures.percentile(99).as_micros(),
        figures.percentile(50).as_secs_f64() / fixed.percentile(50).as_secs_f64(),
    );
}

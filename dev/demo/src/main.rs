//! `make demo`: an installation's life, played on this machine and told as it happens.

mod acts;
mod line;
mod probe;
mod record;
mod screen;
mod story;
mod table;

use anyhow::{Context as _, Result};
use clap::Parser;
use cluster::{Provider, interrupted};
use record::Recorder;
use screen::Screen;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use story::Story;

/// Plays an installation's life on this machine: a real control plane, simulated nodes and a simulated
/// cloud, two replicas each of the real controller and webhook. Nothing outside this machine is touched.
#[derive(Parser)]
#[command(name = "demo")]
struct Cli {
    /// Play once, check everything that is told, and end; 1 if something was not so (this is the default)
    #[arg(long, conflicts_with = "stay")]
    once: bool,
    /// Stay up afterwards, with the kubeconfig printed, until Ctrl-C
    #[arg(long)]
    stay: bool,
    /// The cloud that is simulated
    #[arg(long, value_enum, default_value_t = Provider::Gcp)]
    provider: Provider,
    /// How fast it is told: 2 is twice as fast. Where there is no terminal nothing waits for a reader
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Write an animated picture (SVG) of it
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().map_err(|_| "it is a number, such as 2 or 0.5".to_owned())?;
    if speed.is_finite() && speed > 0.0 { Ok(speed) } else { Err("it must be more than 0".to_owned()) }
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    cluster::init_logging();
    let screen = Screen::new(cli.record.clone().map(Recorder::new));
    let told = tokio::select! {
        told = tell(&cli, &screen) => told,
        () = interrupted() => {
            let _ = screen.finish();
            eprintln!("interrupted: everything that was started is being removed");
            return ExitCode::from(130);
        }
    };
    match told.and_then(|()| screen.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = screen.wrong(&format!("{error:#}"));
            let _ = screen.finish();
            ExitCode::FAILURE
        }
    }
}

async fn tell(cli: &Cli, screen: &Screen) -> Result<()> {
    let began = Instant::now();
    let binary = binary()?;
    let story = Box::pin(Story::begin(screen, &binary, cli.provider, cli.speed)).await?;
    acts::all(&story).await?;
    screen.say(&format!("The demo took {:.0} s.", began.elapsed().as_secs_f64()))?;
    if cli.stay {
        story.stays()?;
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// The binary that `make demo` has built beside this one.
fn binary() -> Result<PathBuf> {
    let mine = std::env::current_exe()?;
    let folder = mine.parent().context("no folder of this program")?;
    let binary = folder.join("ip-address-controller");
    anyhow::ensure!(
        binary.is_file(),
        "there is no {}: build it first (make demo, or cargo build --workspace --bins)",
        binary.display()
    );
    Ok(binary)
}

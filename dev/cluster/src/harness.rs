//! A test binary's `main`: tests as async functions that share the binary's clusters.
//!
//! The usual harness cannot leave tests out with a word, nor end what they share; both matter here.

use crate::{Cluster, Version};
use anyhow::{Result, anyhow};
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// The clusters of a test binary, each started when the first test asks for it.
#[derive(Default)]
pub struct Bed {
    oldest: OnceCell<Result<Cluster, String>>,
    newest: OnceCell<Result<Cluster, String>>,
}

impl Bed {
    /// The shared cluster of a version, with our CRDs in it. If it cannot be started, no test tries
    /// again.
    pub async fn cluster(&self, version: Version) -> Result<&Cluster> {
        let cell = match version {
            Version::Oldest => &self.oldest,
            Version::Newest => &self.newest,
        };
        let started =
            cell.get_or_init(async || start(version).await.map_err(|error| format!("{error:#}"))).await;
        started.as_ref().map_err(|error| anyhow!("{error}"))
    }
}

async fn start(version: Version) -> Result<Cluster> {
    let cluster = Cluster::builder().version(version).start().await?;
    cluster.install_crds().await?;
    Ok(cluster)
}

/// A test: its name and what it does.
pub struct Test {
    name: String,
    needs_control_plane: bool,
    run: Box<dyn FnOnce(Arc<Bed>) -> LocalBoxFuture<'static, Result<()>> + Send>,
}

impl Test {
    /// A test that takes the bed.
    pub fn new<F>(name: &str, run: impl FnOnce(Arc<Bed>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let run = move |bed| -> LocalBoxFuture<'static, Result<()>> { Box::pin(run(bed)) };
        Self { name: name.to_owned(), needs_control_plane: true, run: Box::new(run) }
    }

    /// It needs no control plane, and runs whatever `CONTROL_PLANE` says.
    #[must_use]
    pub fn without_control_plane(self) -> Self {
        Self { needs_control_plane: false, ..self }
    }
}

/// Collects async functions `fn(Arc<Bed>) -> Result<()>` as tests of the same names.
#[macro_export]
macro_rules! tests {
    ($($path:path),* $(,)?) => {
        vec![$($crate::harness::Test::new(stringify!($path), $path)),*]
    };
}

/// The same for functions that also take a [`Version`]; each becomes one test per version.
#[macro_export]
macro_rules! tests_on_all_versions {
    ($($path:path),* $(,)?) => {
        $crate::Version::ALL
            .into_iter()
            .flat_map(|version| {
                let name = |path: &str| format!("{path} on {}", version.number());
                vec![$($crate::harness::Test::new(&name(stringify!($path)), move |bed| $path(bed, version))),*]
            })
            .collect::<Vec<_>>()
    };
}

/// Runs the tests as `cargo test` expects it. With `CONTROL_PLANE=skip` none that needs a control plane
/// runs, and it says so.
pub fn run(tests: Vec<Test>) -> ExitCode {
    run_with(&Arguments::from_args(), tests)
}

/// The same, so many at a time unless the command line says otherwise: for tests that mostly wait.
pub fn run_at_once(number: usize, tests: Vec<Test>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(number);
    run_with(&arguments, tests)
}

/// Runs one thing that is no test, such as a benchmark.
pub fn run_one(future: impl Future<Output = Result<()>>) -> ExitCode {
    crate::init_logging();
    let done =
        tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(future));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_with(arguments: &Arguments, tests: Vec<Test>) -> ExitCode {
    crate::init_logging();
    let skip = std::env::var("CONTROL_PLANE").is_ok_and(|value| value == "skip");
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => {
            eprintln!("no async runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let bed = Arc::new(Bed::default());
    let count = tests.iter().filter(|test| test.needs_control_plane).count();
    let trials = tests
        .into_iter()
        .map(|test| {
            let (bed, runtime) = (bed.clone(), runtime.clone());
            let left_out = skip && test.needs_control_plane;
            let body =
                move || runtime.block_on((test.run)(bed)).map_err(|error| Failed::from(format!("{error:#}")));
            Trial::test(test.name, body).with_ignored_flag(left_out)
        })
        .collect();
    let conclusion = libtest_mimic::run(arguments, trials);
    // Dropping a cluster ends tasks, which needs the runtime around it.
    runtime.block_on(async move { drop(bed) });
    if skip {
        eprintln!("CONTROL_PLANE=skip: {count} tests that need a control plane were NOT run\n");
    }
    conclusion.exit_code()
}

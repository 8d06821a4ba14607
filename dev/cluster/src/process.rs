//! Child processes that can be stopped, killed, paused and restarted, and that never outlive us.

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const STOP_GRACE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// What to run, and where its output goes.
#[derive(Clone, Debug)]
pub struct Program {
    /// Short name, for messages and for the log file.
    pub name: String,
    /// The executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment variables on top of ours.
    pub env: Vec<(String, String)>,
    /// File that standard output and standard error are appended to.
    pub log: PathBuf,
}

/// A [`Program`] that is or was running.
pub struct Process {
    program: Program,
    child: Mutex<Option<Child>>,
    reaper: Arc<Reaper>,
}

impl Process {
    /// Describes a process; nothing runs yet.
    pub fn new(program: Program, reaper: Arc<Reaper>) -> Self {
        Self { program, child: Mutex::new(None), reaper }
    }

    /// Short name of the program.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child().as_ref().map(Child::id)
    }

    /// Starts it, if it does not run already.
    pub fn spawn(&self) -> Result<()> {
        let mut slot = self.child();
        if let Some(child) = slot.as_mut()
            && child.try_wait()?.is_none()
        {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.program.log)?;
        let child = Command::new(&self.program.path)
            .args(&self.program.args)
            .envs(self.program.env.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A group of its own: Ctrl-C in the terminal is ours to handle, in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.path.display()))?;
        self.reaper.watch(child.id());
        *slot = Some(child);
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits; after a grace period it is killed.
    pub async fn stop(&self) -> Result<()> {
        self.resume()?;
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + STOP_GRACE;
        while self.exit_status()?.is_none() && self.id().is_some() {
            if Instant::now() > deadline {
                return self.kill().await;
            }
            tokio::time::sleep(POLL).await;
        }
        self.forget();
        Ok(())
    }

    /// Kills it (SIGKILL), as a crash or the out-of-memory killer would.
    pub async fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)?;
        while self.id().is_some() && self.exit_status()?.is_none() {
            tokio::time::sleep(POLL).await;
        }
        self.forget();
        Ok(())
    }

    /// Freezes it (SIGSTOP): its sockets stay open, nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen process go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// How it ended, if it has.
    pub fn exit_status(&self) -> Result<Option<ExitStatus>> {
        Ok(match self.child().as_mut() {
            Some(child) => child.try_wait()?,
            None => None,
        })
    }

    /// The end of its log, for error messages.
    pub fn log_tail(&self) -> String {
        tail(&self.program.log, 25)
    }

    /// Fails with the log's tail if it has ended or was never started.
    pub fn check_running(&self) -> Result<()> {
        if self.id().is_none() {
            bail!("{} is not running", self.name());
        }
        match self.exit_status()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}\n{}", self.name(), self.log_tail()),
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let mut slot = self.child();
        let Some(child) = slot.as_mut() else { return Ok(()) };
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid =
            i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("process id out of range")?;
        Ok(kill_process(pid, signal)?)
    }

    fn forget(&self) {
        if let Some(child) = self.child().take() {
            self.reaper.forget(child.id());
        }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child().take() {
            // Nothing to do about a failure here; the reaper is behind us.
            let _ = child.kill();
            let _ = child.wait();
            self.reaper.forget(child.id());
        }
    }
}

/// Cleans up after us however we end.
///
/// A shell waits on a pipe whose other end we hold. When we are gone, by whatever signal, it reads the
/// end of file, kills the processes that it was told of and removes the folder. (A parent-death signal
/// would be tied to the thread that spawned the child, not to the process, and exists on Linux only.)
pub struct Reaper {
    shell: Mutex<Child>,
    orders: Mutex<Option<ChildStdin>>,
}

const REAPER: &str = r#"
trap '' INT TERM HUP
pids=' '
while read -r verb pid; do
  case $verb in
    watch) pids="$pids$pid " ;;
    forget) pids="${pids%% "$pid" *} ${pids#* "$pid" }" ;;
  esac
done
for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
rm -rf -- "$1"
"#;

impl Reaper {
    /// Starts the reaper of `folder`.
    pub fn start(folder: &Path) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", REAPER, "reaper"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh, which cleans up after the cluster")?;
        let orders = shell.stdin.take();
        Ok(Self { shell: Mutex::new(shell), orders: Mutex::new(orders) })
    }

    fn watch(&self, pid: u32) {
        self.tell("watch", pid);
    }

    fn forget(&self, pid: u32) {
        self.tell("forget", pid);
    }

    fn tell(&self, verb: &str, pid: u32) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = orders.as_mut() {
            // The shell lives as long as the pipe does.
            let _ = writeln!(pipe, "{verb} {pid}");
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.shell.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// The last lines of a file, indented, with its name above them.
fn tail(path: &Path, lines: usize) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(64 * 1024)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_else(|error| format!("(unreadable: {error})"));
    let all: Vec<&str> = text.lines().collect();
    let last = all[all.len().saturating_sub(lines)..].join("\n    ");
    format!("last lines of {}:\n    {last}", path.display())
}

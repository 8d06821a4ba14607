//! Where the control plane's binaries are. `control-plane/ensure` gets them; this only finds them.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NEWEST_MODULES: &str = include_str!("../control-plane/v1.36/go.mod");
const OLDEST_MODULES: &str = include_str!("../control-plane/v1.33/go.mod");

/// The Kubernetes versions that we test with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The newest that we know.
    Newest,
    /// The oldest that we support. Only its API server is used; the rest is of the newest version.
    Oldest,
}

impl Version {
    /// Both, oldest first.
    pub const ALL: [Self; 2] = [Self::Oldest, Self::Newest];

    /// The full version, e.g. `v1.36.3`, as pinned in our go.mod.
    pub fn number(self) -> &'static str {
        let modules = match self {
            Self::Newest => NEWEST_MODULES,
            Self::Oldest => OLDEST_MODULES,
        };
        pinned(modules, "k8s.io/kubernetes")
    }

    /// The version without its patch number, e.g. `1.36`.
    pub fn minor(self) -> &'static str {
        let number = self.number().trim_start_matches('v');
        number.rsplit_once('.').map_or(number, |(minor, _)| minor)
    }
}

/// Paths of the programs of one cluster.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Binaries {
    pub etcd: PathBuf,
    pub kube_apiserver: PathBuf,
    pub kube_controller_manager: PathBuf,
    pub kube_scheduler: PathBuf,
    pub kubectl: PathBuf,
}

impl Binaries {
    /// Finds the programs, and builds or downloads what is missing (minutes, the first time; progress
    /// goes to standard error).
    pub fn ensure(version: Version) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("control-plane/ensure");
        let status = Command::new(&script)
            .arg(format!("v{}", version.minor()))
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("cannot run {}", script.display()))?;
        if !status.success() {
            bail!("there is no control plane to run (see above)");
        }
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let cache = cache_folder()?;
        let find = |tool: &str, version: Version| {
            let folder = match tool {
                "etcd" => format!("etcd-{}", pinned(NEWEST_MODULES, "go.etcd.io/etcd/server/v3")),
                _ => format!("kubernetes-{}", version.number()),
            };
            assets
                .iter()
                .filter(|_| version == Version::Newest)
                .map(|assets| assets.join(tool))
                .find(|path| path.exists())
                .unwrap_or_else(|| cache.join(folder).join(tool))
        };
        Ok(Self {
            etcd: find("etcd", Version::Newest),
            kube_apiserver: find("kube-apiserver", version),
            kube_controller_manager: find("kube-controller-manager", Version::Newest),
            kube_scheduler: find("kube-scheduler", Version::Newest),
            kubectl: find("kubectl", Version::Newest),
        })
    }
}

fn cache_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CONTROL_PLANE_CACHE") {
        return Ok(folder.into());
    }
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?)
            .join(".cache"),
    };
    Ok(base.join("ip-address-controller/control-plane"))
}

/// The version of a module in a go.mod. The lines are ours, so one that is not found is a typing error.
fn pinned(modules: &'static str, module: &str) -> &'static str {
    modules
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| if words.next() == Some(module) { words.next() } else { None })
        .unwrap_or("(not pinned)")
}

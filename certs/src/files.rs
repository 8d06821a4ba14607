//! Certificates that somebody else makes and mounts.

use crate::contents::Contents;
use crate::material::{Certificate, Leaf, Unusable};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// No certificate file is larger; reading more would only help somebody who wants to hurt.
const LARGEST: u64 = 1 << 20;

/// Where the files are, as cert-manager's Secrets mount them.
#[derive(Clone, Debug)]
pub struct Files {
    /// `tls.crt`: the leaf, and intermediates after it.
    pub certificate: PathBuf,
    /// `tls.key`.
    pub key: PathBuf,
    /// `ca.crt`: what is to be trusted. Needed only if bundles are to be written.
    pub authority: Option<PathBuf>,
    /// How often to look. The kubelet swaps a symbolic link that all three go through; a look costs
    /// three small reads, and needs no help from the kernel.
    pub interval: Duration,
}

impl Files {
    /// In a folder, by the names that cert-manager gives them.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            certificate: folder.join("tls.crt"),
            key: folder.join("tls.key"),
            authority: Some(folder.join("ca.crt")),
            interval: Duration::from_secs(5),
        }
    }

    /// Reads them. Half of a pair, in the moment of a swap, is an error that the next look has not.
    pub async fn read(&self) -> Result<Contents, FileError> {
        let leaf = Leaf::from_pem(&content(&self.certificate).await?, &content(&self.key).await?)
            .map_err(|problem| unusable(&self.certificate, problem))?;
        let old = match &self.authority {
            None => Vec::new(),
            Some(file) => {
                Certificate::all_from_pem(&content(file).await?).map_err(|problem| unusable(file, problem))?
            }
        };
        if self.authority.is_some() && !old.iter().any(|authority| leaf.signed_by(authority)) {
            return Err(unusable(&self.certificate, Unusable::Untrusted));
        }
        Ok(Contents { old, leaf: Some(leaf), ..Contents::default() })
    }
}

/// Why the files are of no use.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// One cannot be read.
    #[error("{}: {problem}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        problem: std::io::Error,
    },
    /// One cannot be used.
    #[error("{}: {problem}", file.display())]
    Unusable {
        /// Which.
        file: PathBuf,
        /// Why.
        problem: Unusable,
    },
}

fn unusable(file: &Path, problem: Unusable) -> FileError {
    FileError::Unusable { file: file.to_owned(), problem }
}

async fn content(file: &Path) -> Result<Vec<u8>, FileError> {
    use tokio::io::AsyncReadExt as _;
    let unreadable = |problem| FileError::Unreadable { file: file.to_owned(), problem };
    let mut bytes = Vec::new();
    let opened = tokio::fs::File::open(file).await.map_err(unreadable)?;
    opened.take(LARGEST).read_to_end(&mut bytes).await.map_err(unreadable)?;
    Ok(bytes)
}

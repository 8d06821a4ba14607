//! A Service's part: new connections go to replicas that are ready, existing ones stay where they are.

use anyhow::Result;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Ports of a replica: the one that serves, the one that tells its health.
type Backends = Arc<Mutex<Vec<(u16, u16)>>>;

/// One address in front of all replicas.
pub struct Balancer {
    pub address: SocketAddr,
    backends: Backends,
    accepting: JoinHandle<()>,
}

impl Balancer {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let backends = Backends::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&backends)));
        Ok(Self { address, backends, accepting })
    }

    pub fn join(&self, serves: u16, health: u16) {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner).push((serves, health));
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, backends: Backends) {
    let mut turn = 0;
    while let Ok((mut caller, _)) = listener.accept().await {
        let mut backends = backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        turn += 1;
        let first = turn % backends.len().max(1);
        backends.rotate_left(first);
        tokio::spawn(async move {
            let Some(mut backend) = connect(&backends).await else { return };
            let _ = (caller.set_nodelay(true), backend.set_nodelay(true));
            let _ = tokio::io::copy_bidirectional(&mut caller, &mut backend).await;
        });
    }
}

/// The first that is ready. A real Service knows from the kubelet's probes; this one asks.
async fn connect(backends: &[(u16, u16)]) -> Option<TcpStream> {
    for (serves, health) in backends {
        let ready = reqwest::get(format!("http://127.0.0.1:{health}/readyz")).await;
        if ready.is_ok_and(|answer| answer.status().is_success())
            && let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, *serves)).await
        {
            return Some(stream);
        }
    }
    None
}

//! A Service's part: new connections go to replicas that are ready, existing ones stay where they are.

use anyhow::Result;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Whether a replica is ready, asked for each connection. A real Service knows from the kubelet's probes.
type Probe = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// Backends, in the order in which they joined.
type Backends = Arc<Mutex<Vec<(SocketAddr, Probe)>>>;

/// One address in front of all replicas.
pub struct Balancer {
    /// The address.
    pub address: SocketAddr,
    backends: Backends,
    accepting: JoinHandle<()>,
}

impl Balancer {
    /// Listens on a free port of loopback.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let backends = Backends::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&backends)));
        Ok(Self { address, backends, accepting })
    }

    /// Adds a replica.
    pub fn join<R>(&self, address: SocketAddr, is_ready: impl Fn() -> R + Send + Sync + 'static)
    where
        R: Future<Output = bool> + Send + 'static,
    {
        let probe: Probe = Arc::new(move || Box::pin(is_ready()));
        self.backends.lock().unwrap_or_else(PoisonError::into_inner).push((address, probe));
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, backends: Backends) {
    let mut turn = 0;
    while let Ok((caller, _)) = listener.accept().await {
        let backends = backends.lock().unwrap_or_else(PoisonError::into_inner).clone();
        turn += 1;
        tokio::spawn(carry(caller, backends, turn));
    }
}

/// One connection, to one of those that are ready; one that says so and does not answer is not made up for.
async fn carry(mut caller: TcpStream, backends: Vec<(SocketAddr, Probe)>, turn: usize) {
    let mut ready = Vec::new();
    for (address, is_ready) in backends {
        if is_ready().await {
            ready.push(address);
        }
    }
    let Some(backend) = ready.get(turn % ready.len().max(1)) else { return };
    let Ok(mut backend) = TcpStream::connect(backend).await else { return };
    let _ = (caller.set_nodelay(true), backend.set_nodelay(true));
    let _ = tokio::io::copy_bidirectional(&mut caller, &mut backend).await;
}

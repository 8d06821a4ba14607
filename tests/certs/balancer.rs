//! kube-proxy's part: new connections go to replicas that are ready, existing ones stay where they are.

use anyhow::Result;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use webhook::server::Health;

/// Backends, in the order in which they joined.
type Backends = Arc<Mutex<Vec<(SocketAddr, Health)>>>;

/// One address in front of all replicas.
pub struct Balancer {
    pub address: SocketAddr,
    backends: Backends,
    accepting: JoinHandle<()>,
}

impl Balancer {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let backends = Backends::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&backends)));
        Ok(Self { address, backends, accepting })
    }

    pub fn join(&self, address: SocketAddr, health: Health) {
        self.backends.lock().unwrap().push((address, health));
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
        let ready: Vec<SocketAddr> = {
            let backends = backends.lock().unwrap();
            backends.iter().filter(|(_, health)| health.readiness().0).map(|(address, _)| *address).collect()
        };
        turn += 1;
        let Some(backend) = ready.get(turn % ready.len().max(1)).copied() else { continue };
        tokio::spawn(async move {
            let Ok(mut backend) = TcpStream::connect(backend).await else { return };
            let _ = (caller.set_nodelay(true), backend.set_nodelay(true));
            let _ = tokio::io::copy_bidirectional(&mut caller, &mut backend).await;
        });
    }
}

//! Where requests go that nothing happens to.

use anyhow::Result;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A server, and how it is reached.
#[derive(Clone)]
pub struct Upstream {
    pub address: SocketAddr,
    pub tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Upstream {
    /// Sends a request on a connection of its own. The reply's body comes as it comes: watches go through.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => converse(stream, request).await,
            Some((connector, name)) => {
                converse(connector.connect(name.clone(), stream).await?, request).await
            }
        }
    }
}

async fn converse<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the reply's body.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

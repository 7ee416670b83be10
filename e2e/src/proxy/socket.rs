//! The client's end of a connection, which the code that answers requests can break.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::Notify,
};
use tokio_rustls::server::TlsStream;

/// The end of a connection, if it is not the client's choice.
#[derive(Debug, Default)]
pub(super) struct End {
    reset: AtomicBool,
    reset_wanted: Notify,
    cut: AtomicBool,
}

impl End {
    /// Ends the connection at once, with a reset: data under way is lost.
    pub(super) fn reset(&self) {
        self.reset.store(true, SeqCst);
        self.reset_wanted.notify_one();
    }

    /// Waits for [`End::reset`], after which the connection must be dropped.
    pub(super) async fn reset_wanted(&self) {
        self.reset_wanted.notified().await;
    }

    /// Ends the connection at the next flush, once everything written has left. Returns true on the first
    /// call.
    pub(super) fn cut(&self) -> bool {
        !self.cut.swap(true, SeqCst)
    }
}

/// A TLS connection that ends as its [`End`] says.
pub(super) struct Socket {
    tls: TlsStream<TcpStream>,
    end: Arc<End>,
}

impl Socket {
    pub(super) fn new(tls: TlsStream<TcpStream>, end: Arc<End>) -> Self {
        Self { tls, end }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.end.reset.load(SeqCst) {
            // A socket that the other side has already closed cannot be reset.
            let _ = self.tls.get_ref().0.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tls).poll_flush(cx))?;
        if self.end.cut.load(SeqCst) {
            return Poll::Ready(Err(io::Error::other("cut by a rule")));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

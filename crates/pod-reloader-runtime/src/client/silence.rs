//! Gives up a connection on which nothing comes for too long.
//!
//! hyper-timeout (0.5.2) does that, too, but sets its timer to the present whenever something has come. That wakes the
//! process up twice more for each read: once to set the timer, and once as it ends a millisecond later.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::time::{Instant, Sleep, sleep};

/// A connection whose reads fail with [`io::ErrorKind::TimedOut`] once nothing has come for too long, although somebody
/// waits for it. What is written begins the time anew.
pub(super) struct Silence<S> {
    stream: S,
    limit: Duration,
    /// Since when a read has waited. `None` while nobody reads.
    since: Option<Instant>,
    /// Ends at the limit, or before it: then it is set anew. So it is seldom set, however often something comes.
    timer: Pin<Box<Sleep>>,
}

impl<S> Silence<S> {
    /// Returns a connection that may be silent for `limit`.
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            since: None,
            timer: Box::pin(sleep(limit)),
        }
    }

    fn has_written(&mut self) {
        self.since = self.since.map(|_| Instant::now());
    }
}

impl<S: Read + Unpin> Read for Silence<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.since = None;
            return Poll::Ready(read);
        }
        let end = *this.since.get_or_insert_with(Instant::now) + this.limit;
        loop {
            ready!(this.timer.as_mut().poll(cx));
            if end <= Instant::now() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.timer.as_mut().reset(end);
        }
    }
}

impl<S: Write + Unpin> Write for Silence<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes));
        this.has_written();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices));
        this.has_written();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl<S: Connection> Connection for Silence<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::rt::ReadBuf;
    use hyper_util::rt::TokioIo;
    use std::future::poll_fn;
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::advance;

    const LIMIT: Duration = Duration::from_secs(10);

    type Ours = Silence<TokioIo<DuplexStream>>;

    fn connection() -> (Ours, DuplexStream) {
        let (ours, theirs) = duplex(1024);
        (Silence::new(TokioIo::new(ours), LIMIT), theirs)
    }

    fn poll_byte(connection: &mut Ours, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut byte = [0];
        Pin::new(connection).poll_read(cx, ReadBuf::new(&mut byte).unfilled())
    }

    /// Reads a byte. Returns how often it had to be asked for.
    async fn byte(connection: &mut Ours) -> io::Result<usize> {
        let mut polls = 0;
        let read = poll_fn(|cx| {
            polls += 1;
            poll_byte(connection, cx)
        });
        read.await?;
        Ok(polls)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_something_comes_is_kept_and_wakes_nobody_in_vain() {
        let (mut ours, mut theirs) = connection();
        let (reads, pause) = (100, LIMIT * 2 / 5);
        // Another task: what it waits for does not wake this one.
        tokio::spawn(async move {
            for _ in 0..reads {
                tokio::time::sleep(pause).await;
                theirs.write_all(b"x").await.unwrap();
            }
        });
        let mut polls = 0;
        for _ in 0..reads {
            polls += byte(&mut ours).await.unwrap();
        }
        // Two for each read, before and after the byte comes. The timer ends in the middle of fewer than half of them.
        assert!(
            (2 * reads..=2 * reads + reads / 2).contains(&polls),
            "{polls}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_given_up_once_somebody_has_waited_for_too_long() {
        let (mut ours, mut theirs) = connection();
        theirs.write_all(b"x").await.unwrap();
        byte(&mut ours).await.unwrap();
        // Nobody reads, so nobody is kept waiting.
        advance(LIMIT * 3).await;
        let began = Instant::now();
        let error = byte(&mut ours).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_the_whole_time_however_long_the_connection_was_idle() {
        let (mut ours, _theirs) = connection();
        let began = Instant::now();
        let idle = poll_fn(|cx| Poll::Ready(poll_byte(&mut ours, cx)));
        assert!(idle.await.is_pending());
        let pause = LIMIT * 9 / 10;
        advance(pause).await;
        let written = poll_fn(|cx| Pin::new(&mut ours).poll_write(cx, b"GET"));
        assert_eq!(written.await.unwrap(), 3);
        byte(&mut ours).await.unwrap_err();
        assert_eq!(began.elapsed(), pause + LIMIT);
    }
}

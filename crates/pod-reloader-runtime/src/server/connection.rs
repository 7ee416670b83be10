//! Serves HTTP/1.1 on one connection, and ends it if its client keeps us waiting.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::IntoResponse;
use futures::FutureExt;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::io::InspectReader;
use tower::Service;
use tracing::{debug, error};

use super::{Limits, Server, Stage};

/// Serves requests on `stream` until either side ends the connection, or a step takes too long.
pub(super) async fn serve<IO>(stream: IO, server: &Server, progress: Arc<Progress>)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    progress.enter(Step::FirstByte);
    let reading = progress.clone();
    let io = TokioIo::new(InspectReader::new(stream, move |bytes: &[u8]| {
        if !bytes.is_empty() {
            reading.received();
        }
    }));
    let service = service_fn(|request| answer(server, request, progress.clone()));
    let mut connection = pin!(
        http1::Builder::new()
            // hyper's limit also runs while a connection is idle. `Limits::headers` replaces it.
            .header_read_timeout(None)
            .max_buf_size(BUFFER)
            .serve_connection(io, service)
    );
    let mut stage = server.stage.clone();
    let mut stopping = pin!(stage.wait_for(|stage| *stage == Stage::Stopping).fuse());
    let mut timer = pin!(sleep_until(Instant::now()));
    poll_fn(|cx| {
        if stopping.as_mut().poll(cx).is_ready() {
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(outcome) = connection.as_mut().poll(cx) {
            if let Err(error) = outcome {
                debug!(%error, "connection failed");
            }
            return Poll::Ready(());
        }
        // Every step is entered within the poll above, so no other wake-up is needed.
        let deadline = progress.deadline(&server.limits);
        // A timer that ends too early is set anew then. To set it at each step would wake the process up each time.
        if deadline < timer.deadline() {
            timer.as_mut().reset(deadline);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if deadline <= Instant::now() {
                debug!(step = ?progress.0.lock().step, "connection timed out");
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    })
    .await;
}

/// Returns the router's answer to one request. A panic of the router is answered with 500.
async fn answer(
    server: &Server,
    request: Request<Incoming>,
    progress: Arc<Progress>,
) -> Result<Response<Tracked>, Infallible> {
    progress.enter(Step::Body);
    if request.body().is_end_stream() {
        progress.arrived();
    }
    let request = request.map(|body| Arriving {
        body,
        progress: progress.clone(),
    });
    let answered = Answered(progress);
    let mut router = server.router.clone();
    let response = AssertUnwindSafe(async { router.call(request).await })
        .catch_unwind()
        .await;
    let mut response = match response {
        Ok(Ok(response)) => response,
        Err(_) => {
            error!("a request made the router panic");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    };
    if *server.stage.borrow() != Stage::Open {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(|body| Tracked {
        body,
        _answered: answered,
    }))
}

/// The step that a connection is in, and since when.
pub(super) struct Progress(Mutex<State>);

#[derive(Clone, Copy)]
pub(super) struct State {
    step: Step,
    pub(super) since: Instant,
    /// True once a request has been answered.
    pub(super) is_proven: bool,
}

/// The steps of a connection: the first two happen once, the others for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Handshake,
    FirstByte,
    Headers,
    Body,
    Answer,
    Idle,
}

impl Progress {
    /// Returns the progress of a connection that has just been accepted.
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            step: Step::Handshake,
            since: Instant::now(),
            is_proven: false,
        }))
    }

    /// Returns the state of a connection that waits for its client. `None` while a request is being answered.
    pub(super) fn waited_for(&self) -> Option<State> {
        Some(*self.0.lock()).filter(|state| state.step != Step::Answer)
    }

    fn deadline(&self, limits: &Limits) -> Instant {
        let state = self.0.lock();
        let limit = match state.step {
            Step::Handshake => limits.handshake,
            Step::FirstByte => limits.first_byte,
            Step::Headers => limits.headers,
            Step::Body | Step::Answer => limits.answer,
            Step::Idle => limits.idle,
        };
        state.since + limit
    }

    fn enter(&self, step: Step) {
        let mut state = self.0.lock();
        let is_proven = state.is_proven || step == Step::Idle;
        *state = State {
            step,
            since: Instant::now(),
            is_proven,
        };
    }

    /// Notes that the body of the request has arrived. The deadline of its answer is unchanged.
    fn arrived(&self) {
        self.0.lock().step = Step::Answer;
    }

    /// Notes that bytes have arrived. Bytes of a body, or of a request sent ahead, begin no step.
    fn received(&self) {
        if matches!(self.0.lock().step, Step::FirstByte | Step::Idle) {
            self.enter(Step::Headers);
        }
    }
}

/// Ends the step in which a request is answered.
struct Answered(Arc<Progress>);

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.enter(Step::Idle);
    }
}

/// A request body that notes when it has arrived.
struct Arriving {
    body: Incoming,
    progress: Arc<Progress>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.progress.arrived();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body that notes when hyper is done with it.
struct Tracked {
    body: Body,
    _answered: Answered,
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The size of hyper's buffer for one connection, and so the maximum size of headers. hyper's default of
/// 400 KiB would add up to 400 MiB over all connections.
const BUFFER: usize = 16 * 1024;

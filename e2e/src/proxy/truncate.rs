//! A body that ends, together with its connection, after a number of bytes.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use anyhow::Error;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame};

use super::socket::End;

pub(super) struct Truncated {
    pub(super) body: UnsyncBoxBody<Bytes, Error>,
    pub(super) remaining: usize,
    pub(super) end: Arc<End>,
}

impl Body for Truncated {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.remaining == 0 && !self.body.is_end_stream() {
            if self.end.cut() {
                // The connection may already have flushed, and has to flush once more.
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            Ok(frame?.map_data(|mut data| {
                data.truncate(self.remaining);
                self.remaining -= data.len();
                data
            }))
        }))
    }
}

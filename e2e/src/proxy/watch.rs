//! Delivers the lines of an open watch as rules say.

use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use anyhow::Error;
use bytes::{Bytes, BytesMut};
use http::{Method, Uri};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    Shared,
    in_force::{Entry, Observed},
    rule::{Fault, Requests},
    socket::End,
};

/// Returns the body of a watch, in place of `upstream`.
pub(super) fn deliver(
    shared: &Shared,
    end: &Arc<End>,
    method: Method,
    uri: Uri,
    upstream: Incoming,
) -> UnsyncBoxBody<Bytes, Error> {
    // Room for one line only: the client sets the pace of the watch, as without a proxy.
    let (lines, received) = mpsc::channel(1);
    let commands = shared.open_watches.register(method.clone(), uri.clone());
    let delivery = Delivery {
        rules: shared.rules.observe(),
        method,
        uri,
        queue: VecDeque::new(),
        commands,
        end: Arc::clone(end),
    };
    // Ends with the receiver, which ends with the connection.
    tokio::spawn(delivery.run(upstream, lines));
    Lines(received).boxed_unsync()
}

/// All watches that are open.
#[derive(Debug, Default)]
pub(super) struct OpenWatches(Mutex<Vec<OpenWatch>>);

#[derive(Debug)]
struct OpenWatch {
    method: Method,
    uri: Uri,
    commands: mpsc::UnboundedSender<Command>,
}

/// A command for an open watch.
#[derive(Debug)]
pub(super) enum Command {
    Inject(Bytes),
    Cut,
}

impl OpenWatches {
    /// Sends a command to all watches among `requests`, and returns their number.
    pub(super) fn send(&self, requests: &Requests, command: impl Fn() -> Command) -> usize {
        let watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watches
            .iter()
            .filter(|watch| requests.contain(&watch.method, &watch.uri))
            .filter(|watch| watch.commands.send(command()).is_ok())
            .count()
    }

    pub(super) fn count(&self, requests: &Requests) -> usize {
        let watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watches
            .iter()
            .filter(|watch| requests.contain(&watch.method, &watch.uri))
            .filter(|watch| !watch.commands.is_closed())
            .count()
    }

    fn register(&self, method: Method, uri: Uri) -> mpsc::UnboundedReceiver<Command> {
        let (commands, received) = mpsc::unbounded_channel();
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| !watch.commands.is_closed());
        watches.push(OpenWatch {
            method,
            uri,
            commands,
        });
        received
    }
}

struct Delivery {
    rules: Observed,
    method: Method,
    uri: Uri,
    queue: VecDeque<Line>,
    commands: mpsc::UnboundedReceiver<Command>,
    end: Arc<End>,
}

impl Delivery {
    async fn run(mut self, mut upstream: Incoming, lines: mpsc::Sender<Result<Bytes, Error>>) {
        let mut splitter = Splitter::default();
        // End of the watch, to be reported once all lines are delivered; `None` before it ends.
        let mut last: Option<Result<(), Error>> = None;
        loop {
            let ready = self.queue.front().map(|line| line.ready(&self.rules));
            let due = match ready {
                Some(Ready::Now) => None,
                Some(Ready::At(due)) => Some(due),
                Some(Ready::OnceRemoved) | None => None,
            };
            let deliverable = matches!(ready, Some(Ready::Now));
            if self.queue.is_empty()
                && let Some(last) = last
            {
                if let Err(error) = last {
                    // A receiver that is gone has ended either way.
                    let _ = lines.send(Err(error)).await;
                }
                return;
            }
            tokio::select! {
                () = lines.closed() => return,
                Some(command) = self.commands.recv() => match command {
                    Command::Inject(line) => self.queue.push_front(Line::at_once(line)),
                    Command::Cut => {
                        self.end.reset();
                        // Waits until the connection is gone: otherwise the client would see a regular end of
                        // the body.
                        return lines.closed().await;
                    }
                },
                () = self.rules.changed() => {}
                Ok(permit) = lines.reserve(), if deliverable => {
                    let line = self.queue.pop_front().expect("there is one to deliver");
                    permit.send(Ok(line.text));
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                // Lines that wait for the client hold the apiserver back; lines that wait for a rule do not.
                frame = upstream.frame(), if last.is_none() && !deliverable => match frame {
                    Some(Ok(frame)) => {
                        let data = frame.into_data().unwrap_or_default();
                        splitter.push(&data, |line| self.arrive(line));
                    }
                    Some(Err(error)) => last = Some(Err(error.into())),
                    None => {
                        splitter.finish(|line| self.arrive(line));
                        last = Some(Ok(()));
                    }
                },
            }
        }
    }

    /// Queues `text` as the rules require.
    fn arrive(&mut self, text: Bytes) {
        let now = Instant::now();
        let mut line = Line::at_once(text);
        let mut copies = 1;
        for entry in self.rules.of(&self.method, &self.uri) {
            let rule = &entry.rule;
            if !rule.fault.is_for_lines()
                || !rule.concerns_line(&line.text)
                || !entry.meet(copies == 0)
            {
                continue;
            }
            match rule.fault {
                Fault::DelayWatch(delay) => line.waits.push((entry, Some(now + delay))),
                Fault::HoldWatch => line.waits.push((entry, None)),
                Fault::DropWatch => copies = 0,
                Fault::DuplicateWatch => copies *= 2,
                _ => {}
            }
        }
        self.queue.extend(std::iter::repeat_n(line, copies));
    }
}

/// A line, with what it waits for: the removal of a rule, or an earlier point in time.
#[derive(Clone)]
struct Line {
    text: Bytes,
    waits: Vec<(Arc<Entry>, Option<Instant>)>,
}

enum Ready {
    Now,
    At(Instant),
    OnceRemoved,
}

impl Line {
    fn at_once(text: Bytes) -> Self {
        Self {
            text,
            waits: Vec::new(),
        }
    }

    fn ready(&self, rules: &Observed) -> Ready {
        let now = Instant::now();
        let waits = self.waits.iter();
        let mut pending = waits
            .filter(|(entry, until)| rules.hold(entry) && until.is_none_or(|until| until > now))
            .map(|(_, until)| *until);
        let Some(first) = pending.next() else {
            return Ready::Now;
        };
        let latest = pending.fold(first, |latest, until| {
            latest.zip(until).map(|(a, b)| a.max(b))
        });
        latest.map_or(Ready::OnceRemoved, Ready::At)
    }
}

/// Splits incoming data into lines.
#[derive(Default)]
struct Splitter(BytesMut);

impl Splitter {
    fn push(&mut self, data: &[u8], mut line: impl FnMut(Bytes)) {
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            self.0.extend_from_slice(part);
            if part.ends_with(b"\n") {
                line(mem::take(&mut self.0).freeze());
            }
        }
    }

    /// Flushes the rest: a line that nobody will complete.
    fn finish(&mut self, mut line: impl FnMut(Bytes)) {
        if !self.0.is_empty() {
            line(mem::take(&mut self.0).freeze());
        }
    }
}

struct Lines(mpsc::Receiver<Result<Bytes, Error>>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.0
            .poll_recv(cx)
            .map(|line| line.map(|line| line.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_come_in_parts_and_parts_may_hold_lines() {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();

        for data in ["on", "e\ntwo\nth", "", "ree\n", "rest"] {
            splitter.push(data.as_bytes(), |line| lines.push(line));
        }
        assert_eq!(lines, ["one\n", "two\n", "three\n"]);

        splitter.finish(|line| lines.push(line));
        assert_eq!(lines.last().unwrap(), "rest");
    }
}

//! Makes one copy exact.

use std::sync::Arc;

use pod_reloader_core::config_sync::Target;
use pod_reloader_core::config_sync::content::{Content, Object, Step};
use pod_reloader_core::config_sync::outcome::{Obstacle, Reason};
use pod_reloader_core::error::chain;
use pod_reloader_core::reference::Reference;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::calls::reason;
use super::metrics::Write;
use super::state::{Copying, Exact, Place, Task};
use super::syncer::Syncer;
use crate::live::request;
use crate::runtime::error::CallError;
use crate::runtime::pause::{self, FIRST_PAUSE, LONGEST_PAUSE};

/// The number of attempts to write a copy that somebody else writes at the same time.
const ATTEMPTS: usize = 3;

impl Syncer {
    /// Makes the copy of a ClusterConfigSync in a namespace exact, as far as it can be. Returns the time to look at it
    /// again.
    pub(super) async fn copy(&self, place: Place) -> Option<Instant> {
        let keys = self.own.keys.first_read().await;
        let task = self.state.lock().task(&place, &keys);
        let again = match task {
            Task::None => None,
            Task::Delete(copy, seen) => self.delete(&place, &copy, &seen).await,
            Task::Write(copying) => self.make_exact(&copying).await,
        };
        self.push_status(place.0);
        again
    }

    async fn delete(&self, place: &Place, copy: &Reference, seen: &Target) -> Option<Instant> {
        match self.calls.delete(copy, seen).await {
            Ok(()) => {
                info!(%copy, "deleted a copy that is not wanted any more");
                self.metrics.writes.count(Write::Delete);
            }
            // The watch brings what has happened to it.
            Err(error) if error.is_not_found() || error.is_conflict() => {}
            Err(error) => {
                self.kit.errors.count(Some(&error));
                let failures = self.state.lock().not_deleted(place);
                let pause = pause::after(failures, FIRST_PAUSE, LONGEST_PAUSE);
                let error = chain(&error);
                warn!(%copy, error, ?pause, "cannot delete a copy that is not wanted any more, trying again");
                return Some(Instant::now() + pause);
            }
        }
        self.state.lock().deleted(place);
        None
    }

    async fn make_exact(&self, copying: &Copying) -> Option<Instant> {
        let (sync, namespace) = (&copying.sync, &copying.copy.namespace);
        let now = Instant::now().into_std();
        let held = copying.pace.not_before(now);
        // The source need not be read for that.
        if let Some(next) = held.filter(|_| copying.is_repair) {
            return Some(next.into());
        }
        let content = match self.source(copying).await {
            Ok(CopySource::Content(version, content)) => {
                let current = Ok((version, content.digest));
                self.state.lock().read(sync, current);
                content
            }
            Ok(CopySource::Obstacle(obstacle)) => {
                // What is not found or not right comes by the watch. A right does not.
                let again = obstacle == Obstacle::SourceForbidden;
                self.state.lock().read(sync, Err(obstacle));
                return again.then(|| Instant::now() + LONGEST_PAUSE);
            }
            Err(error) => return self.failed(copying, &error),
        };
        let exact = copying.exact.as_ref();
        let exact = exact.filter(|exact| exact.digest == content.digest);
        let is_as_seen = |exact: &&Exact| copying.seen.as_ref() == Some(&exact.version);
        if let Some(exact) = exact.filter(|it| is_as_seen(it) && !copying.needs_seal) {
            self.state.lock().exact(sync, namespace, exact.clone());
            return None;
        }
        // It is repaired, and not just given a new content.
        if let Some(next) = held.filter(|_| exact.is_some()) {
            return Some(next.into());
        }
        match self.write(copying, &content).await {
            Ok(written) => {
                self.note(copying, written, content.digest, now);
                None
            }
            Err(error) if error.is_conflict() => Some(Instant::now() + FIRST_PAUSE),
            Err(error) => self.failed(copying, &error),
        }
    }

    /// Notes what has become of a copy that was to get the content with this digest. The write began at `began`.
    fn note(
        &self,
        copying: &Copying,
        written: Written,
        digest: [u8; 16],
        began: std::time::Instant,
    ) {
        let (sync, namespace) = (&copying.sync, &copying.copy.namespace);
        let mut pace = copying.pace;
        let mut state = self.state.lock();
        match written {
            Written::Exact { version, writes } => {
                state.exact(sync, namespace, Exact { version, digest });
                let exact = copying.exact.as_ref();
                let had_it = exact.is_some_and(|exact| exact.digest == digest);
                if had_it && writes > 0 {
                    pace.wrote(began);
                    state.repaired(sync, namespace, pace);
                }
            }
            Written::NotOurs => {
                state.failed(sync, namespace, Reason::ExistsNotOurs);
                // Somebody may write it again and again.
                pace.wrote(began);
                state.repaired(sync, namespace, pace);
            }
            Written::Waits => {}
        }
    }

    /// Returns the content of copies. Copies that are written at the same time share one read.
    async fn source(&self, copying: &Copying) -> Result<CopySource, CallError> {
        let mut reading = copying.source.lock().await;
        if reading.version == copying.source_version
            && let Some(content) = reading.content.upgrade()
        {
            return Ok(CopySource::Content(reading.version.clone(), content));
        }
        let source = match self.calls.read(&copying.sync.source).await {
            Ok(Some(source)) => source,
            Ok(None) => return Ok(CopySource::Obstacle(Obstacle::SourceNotFound)),
            Err(error) if error.reason() == "forbidden" => {
                self.kit.errors.count(Some(&error));
                return Ok(CopySource::Obstacle(Obstacle::SourceForbidden));
            }
            Err(error) => return Err(error),
        };
        let version: Box<str> = source.resource_version().into();
        Ok(match copying.sync.content(source) {
            Ok(content) => {
                let content = Arc::new(content);
                reading.version = version.clone();
                reading.content = Arc::downgrade(&content);
                CopySource::Content(version, content)
            }
            Err(not_copied) => CopySource::Obstacle(Obstacle::Source(not_copied)),
        })
    }

    /// Writes a copy until it is exact.
    async fn write(&self, copying: &Copying, content: &Content) -> Result<Written, CallError> {
        let (sync, copy) = (&copying.sync, &copying.copy);
        // Our own last write may be on its way to the watch.
        let last = copying.exact.as_ref();
        let mut is_there = copying.seen.is_some() || last.is_some();
        let last = last.filter(|exact| exact.digest == content.digest && !copying.needs_seal);
        let mut writes = 0;
        let mut attempts = 0..ATTEMPTS;
        loop {
            let object: Option<Object> = match is_there {
                true => self.calls.read(copy).await?,
                false => None,
            };
            let step = object
                .as_ref()
                .map(|object| step(copying, content, object, last));
            let manifest =
                || sync.manifest(&copy.namespace, content, object.as_ref(), &copying.seals);
            let written = match (step, &object) {
                (None, _) | (_, None) => {
                    let created = self.calls.write(request::create(copy, manifest())).await;
                    created.inspect(|_| self.wrote(copy, Write::Create))
                }
                (Some(Step::Nothing), Some(object)) => {
                    let version = object.resource_version().into();
                    return Ok(Written::Exact { version, writes });
                }
                (Some(Step::LeaveAlone), _) => return Ok(Written::NotOurs),
                (Some(Step::Wait), _) => return Ok(Written::Waits),
                (Some(Step::Replace), _) => {
                    let replaced = self.calls.write(request::replace(copy, manifest())).await;
                    replaced.inspect(|_| self.wrote(copy, Write::Update))
                }
                (Some(Step::Recreate), Some(object)) => {
                    let deleted = self.calls.delete(copy, &object.target()).await;
                    deleted.map(|()| {
                        self.wrote(copy, Write::Delete);
                        object.target()
                    })
                }
            };
            match written {
                Ok(_) if step == Some(Step::Recreate) => {
                    writes += 1;
                    // Finalizers may keep it for a while.
                    is_there = true;
                }
                // Whatever the apiserver has made of it: a webhook that changes it would do so again.
                Ok(target) => {
                    let version = target.resource_version().into();
                    return Ok(Written::Exact {
                        version,
                        writes: writes + 1,
                    });
                }
                Err(error) if error.is_conflict() && attempts.next().is_some() => is_there = true,
                Err(error) => return Err(error),
            }
        }
    }

    fn wrote(&self, copy: &Reference, write: Write) {
        self.metrics.writes.count(write);
        match write {
            Write::Create => info!(%copy, "created a copy"),
            Write::Update => info!(%copy, "updated a copy"),
            Write::Delete => info!(%copy, "deleted a copy, to create it again"),
        }
    }

    /// Notes that a copy cannot be written. Returns the time to try again.
    fn failed(&self, copying: &Copying, error: &CallError) -> Option<Instant> {
        let (sync, namespace) = (&copying.sync, &copying.copy.namespace);
        let Some(reason) = reason(error) else {
            debug!(copy = %copying.copy, "the namespace of a copy is gone, or about to be");
            return None;
        };
        self.kit.errors.count(Some(error));
        let failures = self.state.lock().failed(sync, namespace, reason.clone());
        let pause = pause::after(failures, FIRST_PAUSE, LONGEST_PAUSE);
        // The words of the apiserver may quote a value.
        let reason = reason.as_str();
        warn!(copy = %copying.copy, reason, cause = error.reason(), ?pause, "cannot write a copy, trying again");
        Some(Instant::now() + pause)
    }
}

/// Returns the next step towards an exact copy. `last` is what was written last, if it has the content.
fn step(copying: &Copying, content: &Content, object: &Object, last: Option<&Exact>) -> Step {
    let (sync, namespace) = (&copying.sync, &copying.copy.namespace);
    match last.is_some_and(|last| *last.version == *object.resource_version()) {
        true => Step::Nothing,
        false => sync.step(namespace, content, object, &copying.seals),
    }
}

/// The source of copies.
enum CopySource {
    /// The content of the copies, and the resourceVersion that it was read from.
    Content(Box<str>, Arc<Content>),
    /// The reason why there is none.
    Obstacle(Obstacle),
}

/// The result of writing a copy.
enum Written {
    /// The copy is exact.
    Exact {
        /// Its resourceVersion.
        version: Box<str>,
        /// The number of writes that it took.
        writes: usize,
    },
    /// The object is somebody else's.
    NotOurs,
    /// The copy is being deleted.
    Waits,
}

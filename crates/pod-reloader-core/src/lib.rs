//! The rules of pod-reloader: references, digests, config hashes and decisions, without I/O.

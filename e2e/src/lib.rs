//! End-to-end tests and demo of pod-reloader on a real control plane.

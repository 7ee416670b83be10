//! Serving certificates for admission webhooks: load, check, reload.

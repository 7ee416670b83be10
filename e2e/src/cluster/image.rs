//! Writes an image of one static program, as a layout of OCI.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Writes the image of `program` to `layout`. Its only file is `/NAME`, which it runs.
pub(super) fn write(layout: &Path, program: &Path, name: &str) -> Result<()> {
    let content = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    fs::create_dir_all(layout.join("blobs/sha256"))?;
    let layer = archive(name, &content);
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": [format!("/{name}")], "User": "65532:65532", "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(layout, CONFIG, config.to_string().as_bytes())?,
        "layers": [blob(layout, LAYER, &layer)?],
    });
    let manifest = blob(layout, MANIFEST, manifest.to_string().as_bytes())?;
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]});
    fs::write(layout.join("index.json"), index.to_string())?;
    let version = json!({"imageLayoutVersion": "1.0.0"});
    Ok(fs::write(layout.join("oci-layout"), version.to_string())?)
}

/// Stores a blob, and returns its descriptor.
fn blob(layout: &Path, media_type: &str, content: &[u8]) -> Result<Value> {
    let digest = digest(content);
    let file = layout.join("blobs").join(digest.replace(':', "/"));
    fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
    Ok(json!({"mediaType": media_type, "digest": digest, "size": content.len()}))
}

fn digest(content: &[u8]) -> String {
    let digits = Sha256::digest(content);
    let digits: String = digits.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// Returns an archive in the format of tar, with one program.
fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let mut archive = header(name, content.len());
    archive.extend(content);
    // Two empty blocks are the end.
    let end = archive.len().next_multiple_of(BLOCK) + 2 * BLOCK;
    archive.resize(end, 0);
    archive
}

fn header(name: &str, size: usize) -> Vec<u8> {
    let mut header = vec![0; BLOCK];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000755\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{size:011o}\0"));
    put(136, "00000000000\0");
    // The sum counts its own field as blanks.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    header[148..156].copy_from_slice(sum.as_bytes());
    header
}

/// Returns the architecture of this machine, as images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

const BLOCK: usize = 512;
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_the_archive() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("layer.tar");
        fs::write(&file, archive("program", b"what it does")).unwrap();

        let output = Command::new("tar")
            .args(["--extract", "--to-stdout", "--file"])
            .arg(&file)
            .output()
            .unwrap();

        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"what it does");
    }
}

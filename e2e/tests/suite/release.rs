//! The rules of images and releases, with stand-ins for the programs. `make release-check` uses a real release.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use pod_reloader_e2e::{Programs, mentions, own_kinds};
use serde_json::{Value, json};
use tempfile::TempDir;

#[test]
fn the_same_files_make_the_same_image_which_is_as_the_containerfile_says() -> Result<()> {
    let project = Project::create()?;
    let first = project.image(&["amd64", "arm64"])?;
    let layout = project.path("built/layout");
    let index = blob(&layout, &first)?;
    ensure!(project.image(&["amd64", "arm64"])? == first);
    ensure!(project.image(&["amd64"])? != first);

    ensure!(
        platforms(&index) == ["linux/amd64", "linux/arm64"],
        "{index}"
    );
    project.image(&["amd64", "arm64"])?;
    for manifest in index["manifests"].as_array().context("a list")? {
        let manifest = blob(&layout, text(&manifest["digest"])?)?;
        let config = blob(&layout, text(&manifest["config"]["digest"])?)?;
        let config = &config["config"];
        let containerfile = fs::read_to_string(root().join("Containerfile"))?;
        for line in [
            format!("USER {}", text(&config["User"])?),
            format!("ENTRYPOINT [{}]", config["Entrypoint"][0]),
            format!("ENV {}", text(&config["Env"][0])?),
        ] {
            ensure!(containerfile.lines().any(|its| its == line), "{line}");
        }
        let labels = config["Labels"].as_object().context("labels")?;
        for name in ["title", "description", "licenses"] {
            let name = format!("org.opencontainers.image.{name}");
            let label = format!("{name}={}", labels[&name]);
            ensure!(containerfile.contains(&label), "{label}");
        }
        for name in ["version", "source", "revision", "created"] {
            ensure!(labels.contains_key(&format!("org.opencontainers.image.{name}")));
        }
        let layer = text(&manifest["layers"][0]["digest"])?.replace("sha256:", "blobs/sha256/");
        let list = run(Command::new("tar").arg("tzvf").arg(layout.join(layer)))?;
        let names: Vec<_> = list
            .lines()
            .filter_map(|line| line.split(' ').next_back())
            .collect();
        let expected = [
            "pod-reloader",
            "pod-reloader.cdx.json",
            "THIRD-PARTY-LICENSES.txt",
        ];
        ensure!(names == expected, "{list}");
        ensure!(list.starts_with("-rwxr-xr-x 0/0 "), "{list}");
    }
    Ok(())
}

#[test]
fn an_image_holds_no_program_of_another_architecture() -> Result<()> {
    let project = Project::create()?;
    fs::copy(
        project.path("built/amd64/pod-reloader"),
        project.path("built/arm64/pod-reloader"),
    )?;
    let refused = project.image(&["amd64", "arm64"]).err();
    let refused = format!("{:?}", refused.context("it makes an image")?);
    mentions(&refused, "pod-reloader is no program for arm64")?;
    ensure!(!project.path("built/layout").exists());
    Ok(())
}

/// As with a full disk: the limit of the size of files makes each write beyond it fail.
#[test]
fn a_write_that_fails_leaves_the_earlier_image_and_release() -> Result<()> {
    let project = Project::create()?;
    let digest = project.image(&["amd64", "arm64"])?;
    let release = project.release()?;
    let sums = release.read("SHA256SUMS")?;
    for arch in ["amd64", "arm64"] {
        for name in ["pod-reloader", "kubectl-pod_reloader"] {
            let path = project.path("built").join(arch).join(name);
            let mut program = fs::read(&path)?;
            program.resize(1 << 20, 0);
            fs::write(path, program)?;
        }
    }
    for args in [
        &["image-layout", "built", VERSION, "amd64", "arm64"][..],
        &["release", "assemble", VERSION, "built/release"],
    ] {
        let refused = project.on_a_full_disk(args).output()?;
        ensure!(!refused.status.success(), "{args:?}: {refused:?}");
        ensure!(
            said(&refused).contains("File too large"),
            "{args:?}: {refused:?}"
        );
    }
    ensure!(release.read("SHA256SUMS")? == sums);
    let index = fs::read_to_string(project.path("built/layout/index.json"))?;
    mentions(&index, &digest)?;
    for entry in fs::read_dir(project.path("built"))? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        ensure!(!name.starts_with('.'), "{name} is left");
    }
    Ok(())
}

#[test]
fn a_push_of_a_damaged_image_says_so() -> Result<()> {
    let project = Project::create()?;
    fs::write(project.path("built/image.tar"), "no archive")?;
    let image = "registry.example.com/pod-reloader:1.0.0";
    let refused = project
        .script("push", &["image", "built/image.tar", image])
        .output()?;
    ensure!(refused.status.code() == Some(8), "{refused:?}");
    mentions(&said(&refused), "cannot be unpacked")?;
    Ok(())
}

/// One release, because it takes seconds to make.
#[test]
fn a_release_has_what_users_and_stores_of_charts_and_plugins_need() -> Result<()> {
    let project = Project::create()?;
    let digest = project.image(&["amd64", "arm64"])?;
    let release = project.release()?;
    has_a_chart_that_says_where_it_is_from(&project, &digest, &release).context("the chart")?;
    has_a_provenance_of_each_file_the_commit_and_the_parameters(&digest, &release)
        .context("the provenance")?;
    has_a_manifest_for_krew_that_leads_to_each_archive(&release).context("the manifest")?;
    names_its_image_by_digest_and_is_the_same_every_time(&project, &digest, &release)
}

fn names_its_image_by_digest_and_is_the_same_every_time(
    project: &Project,
    digest: &str,
    release: &Release,
) -> Result<()> {
    let image = format!("registry.example.com/pod-reloader:{VERSION}@{digest}");
    for manifests in ["install.yaml", "install-without-policy.yaml"] {
        let content = release.read(manifests)?;
        ensure!(
            content.contains(&format!("image: {image}\n")),
            "{manifests}"
        );
        ensure!(!content.contains("SET-IMAGE"), "{manifests}");
    }
    let notes = release.read("NOTES.md")?;
    ensure!(
        notes
            == format!(
                "### Added\n\n- It restarts pods.\n\nThe image is `{image}`.\n\
                 The chart is `oci://registry.example.com/charts/pod-reloader`, version {VERSION}.\n\
                 This release is not signed.\n"
            ),
        "{notes}"
    );

    // Nothing more to say than its name: the chart knows the image.
    let chart = release.path(&format!("pod-reloader-{VERSION}.tgz"));
    let rendered = run(Command::new(&project.helm).arg("template").arg(chart))?;
    let image = format!("image: registry.example.com/pod-reloader:{VERSION}\n");
    mentions(&rendered, &image)?;

    let sums = release.read("SHA256SUMS")?;
    let listed: BTreeSet<_> = sums
        .lines()
        .filter_map(|line| line.split("  ").nth(1))
        .collect();
    let mut files = BTreeSet::new();
    for file in fs::read_dir(&release.0)? {
        files.insert(file?.file_name().into_string().unwrap_or_default());
    }
    files.remove("SHA256SUMS");
    ensure!(listed.iter().eq(files.iter()), "{listed:?} {files:?}");
    ensure!(project.release()?.read("SHA256SUMS")? == sums);
    Ok(())
}

fn has_a_chart_that_says_where_it_is_from(
    project: &Project,
    digest: &str,
    release: &Release,
) -> Result<()> {
    let package = release.path(&format!("pod-reloader-{VERSION}.tgz"));
    let shown = |what: &str| {
        let mut show = Command::new(&project.helm);
        run(show.args(["show", what]).arg(&package))
    };
    let default = "| `image.repository` | `\"registry.example.com/pod-reloader\"` |";
    ensure!(
        shown("readme")?.contains(default),
        "its page has the default"
    );
    let chart: Value = serde_saphyr::from_str(&shown("chart")?)?;
    ensure!(
        chart["home"] == "https://git.example.com/pod-reloader",
        "{chart}"
    );
    ensure!(chart["sources"] == json!([chart["home"]]), "{chart}");
    let maintainer = json!({"name": "pod-reloader", "email": "team@example.com"});
    ensure!(chart["maintainers"] == json!([maintainer]), "{chart}");
    let icon = text(&chart["icon"])?.strip_prefix("data:image/svg+xml;base64,");
    let ByteString(icon) = serde_json::from_value(json!(icon))?;
    ensure!(icon == fs::read(project.path("docs/images/icon.svg"))?);
    let annotations = &chart["annotations"];
    ensure!(annotations["artifacthub.io/license"] == "Apache-2.0");
    let images = text(&annotations["artifacthub.io/images"])?;
    let image = format!("image: registry.example.com/pod-reloader:{VERSION}@{digest}");
    mentions(images, &image)?;
    let crds: Vec<Value> = serde_saphyr::from_str(text(&annotations["artifacthub.io/crds"])?)?;
    ensure!(crds.len() == own_kinds().len(), "{crds:?}");
    for own in own_kinds() {
        let is_described = |crd: &Value| {
            let description = crd["description"].as_str();
            let (_, version) = own.api_version.split_once('/').unwrap_or_default();
            crd["name"] == own.definition
                && crd["kind"] == own.kind
                && crd["displayName"] == own.kind
                && crd["version"] == version
                && description.is_some_and(|words| words.ends_with('.'))
        };
        ensure!(crds.iter().any(is_described), "{own:?}: {crds:?}");
    }
    Ok(())
}

#[test]
fn make_takes_from_one_file_where_a_release_goes() -> Result<()> {
    let project = Project::create()?;
    let addresses = "SOURCE=https://git.example.com/a\nIMAGE=registry.example.com/a\n\
                     CHARTS=oci://registry.example.com/b\nDOWNLOADS=${SOURCE}/v${VERSION}\nCONTACT=\n";
    fs::write(project.path("release.env"), addresses)?;
    for (args, part) in [
        (
            ["publish", "VERSION=1.0.0"],
            "IMAGE='registry.example.com/a' CHARTS='oci://registry.example.com/b'",
        ),
        (
            ["release", "VERSION=1.0.0"],
            "DOWNLOADS='https://git.example.com/a/v1.0.0'",
        ),
        (["release", "IMAGE=localhost/c"], "IMAGE='localhost/c'"),
        (["login", "USERNAME=a"], "auth login 'registry.example.com'"),
        // What is no release never goes there of its own accord.
        (["push", "ARCHS=amd64"], "/layout ''"),
        (["push", "IMAGE=localhost/c:1"], "/layout 'localhost/c:1'"),
    ] {
        let printed = run(&mut project.dry_run(&args))?;
        ensure!(printed.contains(part), "{args:?}: {printed}");
    }
    Ok(())
}

/// `make release-check` signs and verifies with cosign itself.
#[test]
fn a_release_with_a_key_is_signed_last_and_says_so() -> Result<()> {
    let project = Project::create()?;
    project.image(&["amd64", "arm64"])?;
    let release = project.signed_release()?;
    let calls = fs::read_to_string(project.path("built/calls"))?;
    let bundle = "SHA256SUMS.sigstore.json";
    for part in ["sign-blob", "--key=mine.key", "--tlog-upload=false", bundle] {
        ensure!(calls.contains(part), "{part}: {calls}");
    }
    let last = calls.lines().next_back().unwrap_or_default();
    ensure!(last.starts_with("sign-blob "), "{calls}");
    ensure!(release.read("NOTES.md")?.contains("`cosign.pub`"));
    ensure!(release.read("SHA256SUMS")?.contains("  cosign.pub\n"));
    Ok(())
}

#[test]
fn a_release_is_signed_later_only_if_it_is_what_its_checksums_say() -> Result<()> {
    let project = Project::create()?;
    project.image(&["amd64", "arm64"])?;
    let cosign = project.program("built/cosign", "#!/bin/sh\necho \"$@\" >>built/calls\n")?;
    let mut assemble = project.script("release", &["assemble", VERSION, "built/release"]);
    run(assemble.env("KEYLESS", "later").env("COSIGN", &cosign))?;
    let release = Release(project.path("built/release"));
    ensure!(
        release
            .read("NOTES.md")?
            .contains("identity of the workflow")
    );
    ensure!(!project.path("built/calls").exists());
    let sign = || {
        let mut sign = project.script("sign", &["release", "built/release"]);
        sign.env("KEYLESS", "1").env("COSIGN", &cosign);
        sign
    };
    for keyless in ["", "later"] {
        let refused = sign().env("KEYLESS", keyless).output()?;
        ensure!(refused.status.code() == Some(2), "{refused:?}");
    }
    let mut publish = project.script("publish", &[VERSION, "built/release"]);
    for (keyless, why) in [
        ("1", "'make sign' does it"),
        ("later", "write KEYLESS=1"),
        ("", "write KEYLESS=1"),
    ] {
        let refused = publish.env("KEYLESS", keyless).output()?;
        ensure!(refused.status.code() == Some(2), "{refused:?}");
        mentions(&said(&refused), why)?;
    }
    fs::write(release.path("another"), "")?;
    let refused = sign().output()?;
    mentions(&said(&refused), "files that SHA256SUMS does not name")?;
    fs::remove_file(release.path("another"))?;
    run(&mut sign())?;
    let calls = fs::read_to_string(project.path("built/calls"))?;
    ensure!(
        calls.starts_with("sign-blob ") && calls.lines().count() == 1,
        "{calls}"
    );

    // One without a signature says so, and what it says is covered by the checksums.
    project.release()?;
    let refused = sign().output()?;
    mentions(&said(&refused), "does not announce such a signature")?;
    Ok(())
}

/// A publication can end between the two.
#[test]
fn an_image_that_has_only_its_attestation_is_still_signed() -> Result<()> {
    let project = Project::create()?;
    let stand_in =
        "#!/bin/sh\necho \"$@\" >>built/calls\n[ \"$1\" != verify ] || cat built/verified\n";
    let cosign = project.program("built/cosign", stand_in)?;
    fs::write(project.path("built/statement"), r#"{"predicate": {}}"#)?;
    let image = format!("registry.example.com/a@sha256:{}", "0".repeat(64));
    for (kind, signs) in [
        ("https://slsa.dev/provenance/v1", true),
        ("https://sigstore.dev/cosign/sign/v1", false),
    ] {
        let verified = json!([{"critical": {"type": kind}}]).to_string();
        fs::write(project.path("built/verified"), verified)?;
        fs::write(project.path("built/calls"), "")?;
        let mut sign = project.script("sign", &["image", &image, "built/statement"]);
        run(sign.env("KEY", "mine.key").env("COSIGN", &cosign))?;
        let calls = fs::read_to_string(project.path("built/calls"))?;
        let signed = calls.lines().any(|line| line.starts_with("sign "));
        ensure!(signed == signs, "{kind}: {calls}");
    }
    Ok(())
}

fn has_a_provenance_of_each_file_the_commit_and_the_parameters(
    digest: &str,
    release: &Release,
) -> Result<()> {
    let provenance: Value = serde_json::from_str(&release.read("provenance.intoto.json")?)?;
    let subjects = provenance["subject"].as_array().context("subjects")?;
    for line in release.read("SHA256SUMS")?.lines() {
        let (sum, name) = line.split_once("  ").context("a sum")?;
        let subject = json!({"name": name, "digest": {"sha256": sum}});
        ensure!(
            subjects.contains(&subject) == (name != "provenance.intoto.json"),
            "{subject}"
        );
    }
    let image = json!({
        "name": "registry.example.com/pod-reloader",
        "digest": {"sha256": digest.trim_start_matches("sha256:")},
    });
    ensure!(subjects.contains(&image), "{provenance}");
    let definition = &provenance["predicate"]["buildDefinition"];
    ensure!(definition["externalParameters"]["version"] == VERSION);
    let commit = &definition["resolvedDependencies"][0]["digest"]["gitCommit"];
    ensure!(
        commit == "0123456789abcdef0123456789abcdef01234567",
        "{commit}"
    );
    Ok(())
}

/// As krew's own checks have it: `make release-check` runs these where they are installed.
fn has_a_manifest_for_krew_that_leads_to_each_archive(release: &Release) -> Result<()> {
    let manifest: Value = serde_saphyr::from_str(&release.read("pod-reloader.yaml")?)?;
    ensure!(manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2");
    ensure!(manifest["kind"] == "Plugin");
    ensure!(manifest["metadata"]["name"] == "pod-reloader");
    let spec = &manifest["spec"];
    ensure!(spec["version"] == format!("v{VERSION}"));
    ensure!(spec["homepage"] == "https://git.example.com/pod-reloader");
    let sums = release.read("SHA256SUMS")?;
    let platforms = spec["platforms"].as_array().context("platforms")?;
    for (platform, arch) in platforms.iter().zip(["amd64", "arm64"]) {
        let file = format!("kubectl-pod_reloader-{VERSION}-linux-{arch}.tar.gz");
        ensure!(platform["selector"] == json!({"matchLabels": {"os": "linux", "arch": arch}}));
        ensure!(platform["uri"] == format!("https://git.example.com/downloads/{file}"));
        let sum = format!("{}  {file}", text(&platform["sha256"])?);
        ensure!(sums.lines().any(|line| line == sum), "{sum}");
        let list = run(Command::new("tar").arg("tzf").arg(release.path(&file)))?;
        ensure!(
            list == "kubectl-pod_reloader\nkubectl_complete-pod_reloader\nLICENSE\nTHIRD-PARTY-LICENSES.txt\n",
            "{list}"
        );
        ensure!(platform["bin"] == "kubectl-pod_reloader");
    }
    ensure!(platforms.len() == 2);
    Ok(())
}

#[test]
fn what_is_not_ready_for_a_release_is_said_all_at_once() -> Result<()> {
    let project = Project::create()?;
    let ready = project.script("release", &["check", VERSION]).output()?;
    ensure!(ready.status.success(), "{ready:?}");
    fs::write(
        project.path("CHANGELOG.md"),
        format!("## [{VERSION}]\n\n- It restarts pods.\n"),
    )?;
    for (file, denial) in [
        ("README.md", "There is no release yet."),
        ("README.md", "No release is published yet."),
        ("templates/NOTES.txt", "No image is published yet."),
    ] {
        fs::write(project.path("charts/pod-reloader").join(file), denial)?;
        let refused = project
            .script("release", &["check", VERSION])
            .env("REQUIRE", "1")
            .output()?;
        let says_so = format!("{file} says that nothing is released");
        for part in ["no date in", &*says_so] {
            ensure!(
                said(&refused).contains(part),
                "{denial} {part}: {refused:?}"
            );
        }
    }
    let refused = project
        .script("release", &["check", "9.9.9"])
        .env("IMAGE", "registry.example.com/pod-reloader:latest")
        .env("DOWNLOADS", "http://git.example.com")
        .env("CONTACT", "")
        .env("REQUIRE", "1")
        .output()?;
    for part in [
        "Cargo.toml has version",
        "Chart.yaml has version",
        "Chart.yaml has appVersion",
        "run 'make manifests'",
        "CHANGELOG.md has nothing under '## [9.9.9]'",
        "not committed",
        "IMAGE=registry.example.com/pod-reloader:latest has a tag",
        "DOWNLOADS=http://git.example.com is no URL with https",
        "release.env has no CONTACT",
    ] {
        ensure!(said(&refused).contains(part), "{part}: {refused:?}");
    }
    ensure!(refused.status.code() == Some(1));
    for version in ["", "v1.0.0", "1.0", "01.0.0", "latest"] {
        let refused = project.script("release", &["check", version]).output()?;
        mentions(&said(&refused), "is no version")?;
        ensure!(refused.status.code() == Some(1));
    }
    Ok(())
}

#[test]
fn advisories_are_left_out_without_a_database_unless_they_are_required() -> Result<()> {
    let project = Project::create()?;
    let check = |required: &str| {
        project
            .script("advisories", &["cargo-deny"])
            .env("CARGO_HOME", project.path("built"))
            // No name of a host leads anywhere.
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("ADVISORIES", "")
            .env("REQUIRE", required)
            .output()
    };
    let left_out = check("")?;
    ensure!(left_out.status.success(), "{left_out:?}");
    let printed = String::from_utf8_lossy(&left_out.stdout).into_owned();
    mentions(&printed, "left out")?;
    ensure!(printed.lines().count() == 1, "{printed}");
    let refused = check("1")?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    mentions(&said(&refused), "no database of advisories")?;
    Ok(())
}

#[test]
fn an_old_clone_of_the_advisories_is_no_check_of_a_release() -> Result<()> {
    let project = Project::create()?;
    fs::write(project.path("deny.toml"), "")?;
    let deny = project.program("built/deny", "#!/bin/sh\n")?;
    let clone = project.path("built/database");
    let git = |args: &[&str], date: &str| {
        run(Command::new("git")
            .arg("-C")
            .arg(&clone)
            .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
            .args(args)
            .env("GIT_AUTHOR_DATE", date)
            .env("GIT_COMMITTER_DATE", date))
    };
    fs::create_dir(&clone)?;
    git(&["init", "--quiet", "--initial-branch=main"], "")?;
    let commit = ["commit", "--quiet", "--allow-empty", "--message=a"];
    let check = |required: &str| {
        project
            .script("advisories", &[])
            .arg(&deny)
            .env("ADVISORIES", &clone)
            .env("REQUIRE", required)
            .output()
    };

    git(&commit, "2020-01-01T00:00:00Z")?;
    let old = check("")?;
    ensure!(old.status.success(), "{old:?}");
    let refused = check("1")?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    mentions(&said(&refused), "update the clone")?;
    let now = run(Command::new("date").arg("+@%s +0000"))?;
    git(&commit, now.trim())?;
    let new = check("1")?;
    ensure!(new.status.success(), "{new:?}");
    Ok(())
}

/// What a registry answers is tested by `make release-check`.
#[test]
fn a_push_to_nowhere_says_what_to_write() -> Result<()> {
    let project = Project::create()?;
    for (args, part) in [
        (
            ["image", "built/layout", "pod-reloader:1.0.0"],
            "names no registry",
        ),
        (
            ["image", "built/layout", "team/pod-reloader:1.0.0"],
            "names no registry",
        ),
        (["image", "built/layout", ""], "names no registry"),
        (
            ["image", "built/layout", "registry.example.com/pod-reloader"],
            "has no tag",
        ),
        (
            ["image", "built/layout", "registry.example.com/a@sha256:0"],
            "has a digest",
        ),
        (
            ["image", "built/layout", "registry.example.com/a:1"],
            "'make image' writes one",
        ),
        (
            ["chart", "a.tgz", "registry.example.com/charts"],
            "write oci://REGISTRY/FOLDER",
        ),
        (
            ["chart", "a.tgz", "oci://registry.example.com"],
            "'make release' writes one",
        ),
    ] {
        let refused = project.script("push", &args).output()?;
        ensure!(said(&refused).contains(part), "{args:?}: {refused:?}");
        ensure!(refused.status.code() == Some(2), "{args:?}: {refused:?}");
    }
    Ok(())
}

#[test]
fn a_release_that_was_changed_is_not_published() -> Result<()> {
    let project = Project::create()?;
    project.image(&["amd64", "arm64"])?;
    let release = project.release()?;
    fs::write(release.path("provenance.intoto.json"), "{}")?;
    let refused = project
        .script("publish", &[VERSION, "built/release"])
        .output()?;
    ensure!(refused.status.code() == Some(2), "{refused:?}");
    mentions(&said(&refused), "is not what SHA256SUMS says")?;
    Ok(())
}

/// Whoever may push to the registry, and has no key, must get nothing signed.
#[test]
fn the_chart_of_a_registry_is_ours_and_nothing_else_or_the_tag_is_taken() -> Result<()> {
    let project = Project::create()?;
    project.image(&["amd64", "arm64"])?;
    let release = project.release()?;
    let name = format!("pod-reloader-{VERSION}.tgz");
    let sums = release.read("SHA256SUMS")?;
    let line = sums.lines().find(|line| line.ends_with(&name));
    let ours = line.and_then(|line| line.split(' ').next());
    let ours = format!("sha256:{}", ours.context("no sum")?);
    let programs = "#!/bin/sh\ncase $1 in crane) echo built/crane ;; *) echo \"$HELM\" ;; esac\n";
    project.program("scripts/go-program", programs)?;
    project.program("built/crane", "#!/bin/sh\ncat built/manifest\n")?;
    let archive = format!("built/release/{name}");
    let places = [
        "chart",
        archive.as_str(),
        "oci://registry.example.com/charts",
    ];

    let more = format!("sha256:{}", "0".repeat(64));
    for (layers, expected) in [(vec![&ours], 0), (vec![&ours, &more], 3), (vec![&more], 3)] {
        let layers = Vec::from_iter(layers.iter().map(|digest| json!({"digest": digest})));
        let manifest = json!({"layers": layers}).to_string();
        fs::write(project.path("built/manifest"), &manifest)?;
        let pushed = project.script("push", &places).output()?;
        ensure!(pushed.status.code() == Some(expected), "{pushed:?}");
        let sum = run(Command::new("sha256sum").arg(project.path("built/manifest")))?;
        let digest = format!("@sha256:{}\n", sum.split(' ').next().unwrap_or_default());
        let printed = String::from_utf8_lossy(&pushed.stdout).into_owned();
        ensure!(printed.ends_with(&digest) == (expected == 0), "{printed}");
    }
    // An index has no layers.
    fs::write(project.path("built/manifest"), r#"{"manifests": []}"#)?;
    let refused = project.script("push", &places).output()?;
    ensure!(refused.status.code() == Some(3), "{refused:?}");
    Ok(())
}

/// A repository with the scripts, and with programs that are nothing but their heads.
struct Project {
    folder: TempDir,
    helm: PathBuf,
}

struct Release(PathBuf);

impl Project {
    fn create() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let project = Self {
            folder,
            helm: Programs::find()?.program("helm"),
        };
        run(Command::new("cp")
            .args([
                "-R",
                "--parents",
                "scripts",
                "charts",
                "Cargo.toml",
                "Cargo.lock",
                "LICENSE",
                "Makefile",
                "docs/images/icon.svg",
                "release.env",
            ])
            .arg(project.path(""))
            .current_dir(root()))?;
        let changelog = format!(
            "# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [{VERSION}] - 2026-01-01\n\n\
             ### Added\n\n- It restarts pods.\n\n## [0.0.1]\n\n- Earlier.\n"
        );
        fs::write(project.path("CHANGELOG.md"), changelog)?;
        fs::write(project.path(".gitignore"), "/built\n")?;
        for args in [
            &["init", "--quiet"][..],
            &["add", "--all"],
            &[
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@example.com",
                "commit",
                "--quiet",
                "--message=a",
            ],
        ] {
            run(Command::new("git").args(args).current_dir(project.path("")))?;
        }
        for (arch, machine) in [("amd64", 0x3e), ("arm64", 0xb7)] {
            let mut head = b"\x7fELF".to_vec();
            head.resize(18, 0);
            head.extend([machine, 0]);
            fs::create_dir_all(project.path("built").join(arch))?;
            for name in ["pod-reloader", "kubectl-pod_reloader"] {
                let path = project.path("built").join(arch).join(name);
                fs::write(path.with_extension("cdx.json"), "{}")?;
                fs::write(path.with_extension("licenses.txt"), "none\n")?;
                fs::write(path, &head)?;
            }
        }
        Ok(project)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("scripts").join(name));
        command
            .args(args)
            .current_dir(self.path(""))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .env("REVISION", "0123456789abcdef0123456789abcdef01234567")
            .env("SOURCE", "https://git.example.com/pod-reloader")
            .env("BUILT", "built")
            .env("HELM", &self.helm)
            .env("IMAGE", "registry.example.com/pod-reloader")
            .env("CHARTS", "oci://registry.example.com/charts")
            .env("DOWNLOADS", "https://git.example.com/downloads/")
            .env("CONTACT", "team@example.com")
            .env_remove("REQUIRE")
            .env_remove("KEY")
            .env_remove("KEYLESS")
            .env_remove("COSIGN_PRIVATE_KEY");
        command
    }

    /// Runs a script that can write no file of more than 512 KiB.
    fn on_a_full_disk(&self, args: &[&str]) -> Command {
        let mut command = self.script("image-layout", &[]);
        let environment: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = Command::new("bash");
        command
            .args([
                "-c",
                "trap '' XFSZ; ulimit -f 512; name=$1; shift; exec scripts/$name \"$@\"",
            ])
            .arg("bash")
            .args(args)
            .current_dir(self.path(""))
            .envs(environment);
        command
    }

    /// Prints what make would run, without what the make of the tests was given.
    fn dry_run(&self, args: &[&str]) -> Command {
        let mut command = Command::new("make");
        command
            .arg("--dry-run")
            .args(args)
            .current_dir(self.path(""))
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL");
        command
    }

    /// Writes the image, and returns its digest.
    fn image(&self, architectures: &[&str]) -> Result<String> {
        let args = [&["built", VERSION], architectures].concat();
        Ok(run(&mut self.script("image-layout", &args))?
            .trim()
            .to_owned())
    }

    /// Writes a stand-in for a program, and returns its path.
    fn program(&self, name: &str, script: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Makes a release that a stand-in for cosign signs, which writes down how it is called.
    fn signed_release(&self) -> Result<Release> {
        let cosign = self.program("built/cosign", "#!/bin/sh\necho \"$@\" >>built/calls\n")?;
        let mut release = self.script("release", &["assemble", VERSION, "built/release"]);
        run(release.env("KEY", "mine.key").env("COSIGN", &cosign))?;
        Ok(Release(self.path("built/release")))
    }

    fn release(&self) -> Result<Release> {
        run(&mut self.script("release", &["assemble", VERSION, "built/release"]))?;
        Ok(Release(self.path("built/release")))
    }
}

impl Release {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.path(name)).with_context(|| name.to_owned())
    }
}

/// Returns a blob of JSON, if it is what its digest says.
fn blob(layout: &Path, digest: &str) -> Result<Value> {
    let path = layout.join(digest.replace("sha256:", "blobs/sha256/"));
    let sum = run(Command::new("sha256sum").arg(&path))?;
    ensure!(
        digest.strip_prefix("sha256:") == sum.split(' ').next(),
        "{digest}: {sum}"
    );
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn platforms(index: &Value) -> Vec<String> {
    let manifests = index["manifests"].as_array().into_iter().flatten();
    let platforms = manifests.map(|manifest| &manifest["platform"]);
    let part =
        |platform: &Value, name: &str| platform[name].as_str().unwrap_or_default().to_owned();
    platforms
        .map(|platform| {
            format!(
                "{}/{}",
                part(platform, "os"),
                part(platform, "architecture")
            )
        })
        .collect()
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| value.to_string())
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", said(&output));
    Ok(String::from_utf8(output.stdout)?)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

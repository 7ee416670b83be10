# What one does in this repository: `make help` lists it.

.DEFAULT_GOAL := help
# A file whose command fails is not left behind half written, to be taken for a complete one.
.DELETE_ON_ERROR:

e2e := pod-reloader-e2e
scripts := .ci/run scripts/need scripts/changed scripts/earlier scripts/browser scripts/prometheus scripts/boundaries scripts/house scripts/prose scripts/site scripts/static-binary scripts/image-check scripts/image-layout scripts/sbom scripts/licences scripts/advisories scripts/go-program scripts/push scripts/sign scripts/publish scripts/provenance scripts/release scripts/release-check scripts/release-check-installed scripts/release-check-on-node scripts/test-runner e2e/control-plane/build.sh e2e/tests/suite/docs/prelude.sh
# Not by `cargo run`: its variables would make the cargo inside compile ring again, every time.
built := $(or $(CARGO_TARGET_DIR),target)/debug
control_plane := $(built)/control-plane --
cluster := $(built)/cluster

# Checks in which order the modules of each crate use each other.
layers := cargo run --quiet -p layers -- crates/* webhook-certs e2e e2e/browser

# Taken from PATH, or else built once: no registry has a current binary.
tools := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pod-reloader/tools
cargo_deny_version := 0.20.2
cargo_deny_root := $(tools)/cargo-deny-$(cargo_deny_version)
cargo_deny := $(or $(shell command -v cargo-deny),$(cargo_deny_root)/bin/cargo-deny)

cargo_fuzz_version := 0.13.2
cargo_fuzz_root := $(tools)/cargo-fuzz-$(cargo_fuzz_version)
cargo_fuzz := $(or $(shell command -v cargo-fuzz),$(cargo_fuzz_root)/bin/cargo-fuzz)
fuzz_words := fuzz/corpus/words.dict
fuzz_targets := $(notdir $(basename $(wildcard fuzz/targets/*.rs)))
# For each of them.
SECONDS := 60

cargo_cyclonedx_version := 0.5.9
cargo_cyclonedx_root := $(tools)/cargo-cyclonedx-$(cargo_cyclonedx_version)
# Never another version: the image has what it writes, and the same sources give the same image.
cargo_cyclonedx := $(cargo_cyclonedx_root)/bin/cargo-cyclonedx

mdbook_version := 0.5.4
mdbook_root := $(tools)/mdbook-$(mdbook_version)
# Never another version: docs/book.toml names options that not all versions know.
mdbook := $(mdbook_root)/bin/mdbook
site := $(or $(CARGO_TARGET_DIR),target)/site

# Keeps what the compiler makes of the crates of others, for all clones. It is used where `make compiler-cache` has built
# it, unless RUSTC_WRAPPER names something else, or nothing.
sccache_version := 0.19.0
sccache_root := $(tools)/sccache-$(sccache_version)
ifeq ($(origin RUSTC_WRAPPER),undefined)
ifneq ($(wildcard $(sccache_root)/bin/sccache),)
export RUSTC_WRAPPER := $(sccache_root)/bin/sccache
export SCCACHE_DIR := $(sccache_root)/kept
export SCCACHE_CACHE_SIZE := 4G
# A server of its own. It counts the seconds since it was last asked, and ends even if it still compiles: the largest crate
# takes more than a minute on a busy machine.
export SCCACHE_SERVER_UDS := $(sccache_root)/socket
export SCCACHE_IDLE_TIMEOUT := 300
# Without it, the compiler runs as if there were no cache.
export SCCACHE_IGNORE_SERVER_IO_ERROR := 1
endif
endif

version := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
arch := $(if $(filter arm64 aarch64,$(shell uname -m)),arm64,amd64)
# The architectures of an image, and of a release both.
ARCHS := amd64 arm64
# What images and releases are made of: the binaries of each architecture, their bills of materials and licences, and the image.
built_image := $(or $(CARGO_TARGET_DIR),target)/image
image_binary := $(built_image)/$(arch)/pod-reloader
release := $(or $(CARGO_TARGET_DIR),target)/release-$(VERSION)
# The commit, which dates everything, and which the image names if nothing else is in it.
dated = SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 0)} \
  REVISION=$$([ -n "$$(git status --porcelain 2>/dev/null || echo none)" ] || git rev-parse HEAD)

# BROWSER=none and PROMETHEUS=none do without: the tests that need them say so and do nothing.
ifeq ($(BROWSER),none)
export BROWSER_BIN := none
endif
ifeq ($(PROMETHEUS),none)
export PROMETHEUS_BIN := none
endif
browser := BROWSER_BIN=$$(scripts/browser 2>/dev/null)

# Only for those who want to build the image by an engine.
engine := $(firstword $(foreach engine,podman buildah docker,$(shell command -v $(engine))))
# SOURCE, IMAGE, CHARTS, DOWNLOADS and CONTACT of releases.
include release.env
places = SOURCE='$(SOURCE)' IMAGE='$(IMAGE)' CHARTS='$(CHARTS)' DOWNLOADS='$(DOWNLOADS)' CONTACT='$(CONTACT)'
# How a release is signed, and who makes it. COSIGN_PRIVATE_KEY and COSIGN_PASSWORD may be in the environment, too.
signing = KEY='$(KEY)' KEYLESS='$(KEYLESS)' BUILDER='$(BUILDER)'
# A build that is no release goes where somebody has said: never to the repository of releases because nobody did.
named_image = $(if $(filter command,$(origin IMAGE)),$(IMAGE))

# End-to-end tests spend more than half of their time waiting. With six at once, two slow cores are busy throughout, but a
# third of two quick ones idles. With eight at once, it is a fifth, and slow ones take as long.
threads := 8
# The folder in which scripts/test-runner notes how long each test takes, and which are unsteady.
export TEST_RECORDS := $(abspath $(or $(CARGO_TARGET_DIR),target))/test-records
# Always of the whole workspace: cargo builds a crate once for each set of features, which are those that the selected
# packages ask for. So no phase builds anew what an earlier one has built.
runner := --config 'target."cfg(all())".runner="scripts/test-runner"'
tests := cargo test --workspace $(runner)
# The tests that need no cluster: all but those in e2e/tests.
tests_in_files := $(wildcard crates/*/tests/*.rs webhook-certs/tests/*.rs)
tests_in_folders := $(wildcard crates/*/tests/*/main.rs webhook-certs/tests/*/main.rs)
unit_tests := $(tests) --lib --bins $(addprefix --test=,$(basename $(notdir $(tests_in_files))) $(notdir $(patsubst %/main.rs,%,$(tests_in_folders))))
# The programs, and the tests that need a cluster.
build := cargo build --workspace --bins --test=suite --test=real

# What a mistake breaks first: one test of each part.
first := clients::a_release_by_any_client_makes_one_rollout_with_the_new_hash \
  contents::a_change_of_content_rolls_every_kind_of_workload_once contents::nothing_but_content_rolls \
  dialects::a_match_of_a_regular_expression_rolls_when_it_comes_changes_and_goes \
  outage::the_policy_preserves_the_hash_while_the_webhook_is_down \
  pending::a_change_of_the_template_includes_the_pending_change_and_leaves_the_loop_idle \
  plugin::explain_shows_the_sync_status_of_each_workload \
  rbac::with_its_own_ca_in_all_namespaces_the_operator_uses_every_rule_and_lacks_none \
  restart::a_restart_over_unchanged_workloads_writes_nothing \
  takeover::workloads_of_saps_controller_get_a_baseline_and_roll_at_their_first_change

# The versions of Kubernetes, the current one among them: all tests run on that one, and some on the oldest.
current := 1.36
versions := $(sort $(current) $(notdir $(wildcard e2e/control-plane/versions/*)))
oldest := $(firstword $(versions))

# Files of tests, or some of their tests, that `make test` runs on the oldest one, too. It has no MutatingAdmissionPolicy.
on_oldest := clients:: pending:: rbac::with_its_own_ca rbac::with_pins rbac::with_protection pins::unpinned:: pins::pods::by_the_webhook protect::always:: bind::guards:: sync::guards::
# They take the machine for themselves, and the others would wait too long for it.
floods := rolling:: server:: tenant::
# Nothing breaks in these, but they have a full size, too. A run with VALUES is about faults alone.
only_larger := certificates::rotations_by_cert_manager gitops:: operator_releases::a_namespace_that_moves pins::clients::no_sync protect::in_use::what_is_deleted_right_after staged::one_bad_edit sync::base_secret::
faults := answer_faults:: apiserver_faults:: leaders:: limits:: namespaces:: replicas:: restart:: rolling:: server:: share:: storm:: reverted_hash:: sync::copies:: sync::faults:: tenant::
# With values of its own, an operator looks after all namespaces, and has no Role for this one to change.
faults += $(if $(VALUES),--skip=namespaces::without_the_right_to_read_secrets,$(only_larger))
# $(call on,VERSION,TESTS)
on = RERUN='make test-versions KUBERNETES=$(1)' RUST_TEST_THREADS=$(threads) \
  $(control_plane:%--=%$(if $(filter-out $(current),$(1)),--kubernetes=$(1)) --) $(tests) --test=suite --no-fail-fast -- $(2)
build_control_plane = e2e/control-plane/build.sh $(addprefix --kubernetes=,$(filter-out $(current),$(1)))

.PHONY: help
help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | \
	  while IFS='|' read -r target text; do printf 'make %-14s %s\n' "$$target" "$$text"; done

.PHONY: demo
demo: ## Show the operator on a control plane of its own; KEEP=1 leaves it running, REAL=1 has pods that run, as root on Linux
	$(if $(filter 1,$(REAL)),$(real_demo),$(played_demo))

kept := $(if $(filter 1,$(KEEP)),--keep)
define played_demo
@scripts/need rust cc demo
@echo 'The first run takes about seven minutes on two cores: five for the control plane, one and a half for the operator. Later runs take one.'
$(call phase,1 of 3: control plane,e2e/control-plane/build.sh --for=demo >/dev/null)
$(call phase,2 of 3: build,cargo build -p pod-reloader -p $(e2e) --bin pod-reloader --bin demo)
$(call phase,3 of 3: demo,$(built)/demo $(kept))
endef

define real_demo
@scripts/need rust cc cluster
@echo 'The first run takes about ten minutes on two cores: most of them for the control plane and the programs of the node. Later runs take two.'
$(call node_programs,1 of 3: control plane and node)
$(call phase,2 of 3: build,cargo build -p pod-reloader -p $(e2e) --bin pod-reloader --bin cluster --bin demo)
$(call phase,3 of 3: demo,$(quick_cluster) -- $(built)/demo --real $(kept))
endef

.PHONY: test
test: ## Run all tests, most of them on a real control plane, the last on a real node where it can; TEST=name picks by name, BROWSER=none, PROMETHEUS=none and REAL=none do without these
	@scripts/need rust cc jq control-plane
	@scripts/test-runner --begin
	$(call phase,browser and Prometheus,scripts/browser && scripts/prometheus)
	$(call phase,build,$(MAKE) --no-print-directory --jobs=2 build-tests build-counted)
	$(call phase,unit and router tests,$(browser) $(unit_tests) $(TEST) && $(tests) --doc $(TEST))
	$(call phase,control plane,$(call build_control_plane,$(oldest)) >/dev/null)
	$(call phase,end-to-end tests,$(browser) RUST_TEST_THREADS=$(threads) $(control_plane) $(tests) --test=suite --no-fail-fast $(or $(TEST),-- $(addprefix --skip=,$(floods))))
	$(if $(TEST),,$(call phase,floods,RUST_TEST_THREADS=2 $(control_plane) $(tests) --test=suite --no-fail-fast -- $(floods)))
	$(if $(TEST),,$(call phase,on Kubernetes $(oldest),$(call on,$(oldest),$(on_oldest) --skip=pins::clients::)))
	$(if $(TEST)$(filter none,$(REAL)),,$(call where_it_can,smoke))
	@scripts/test-runner --end

.PHONY: build-tests build-counted
# In one go: parts of the largest crates keep only one core busy, and others are compiled meanwhile. Without MAKEFLAGS: it
# tells compilers of pipes of make that are closed in these commands.
build-tests:
	@unset MAKEFLAGS MFLAGS; cargo build --workspace --bins --tests
# What the test that counts instructions would build itself, while nothing else runs. Its profile has a folder of its own, so
# neither build waits for the other.
build-counted:
	@unset MAKEFLAGS MFLAGS; ! command -v valgrind >/dev/null || cargo build --profile=instructions -p pod-reloader-core --bin=instructions

# $(call changed,crates) or $(call changed,tests): sets $$changed to what differs from main with CHANGED=1, else to nothing.
changed = changed=$(if $(filter 1,$(CHANGED)),$$(scripts/changed $(1)))

.PHONY: check
check: ## Run the quick checks, in three minutes: clippy, unit tests, and an end-to-end test of each part; CHANGED=1 runs what differs from main
	@scripts/need rust cc rustfmt clippy control-plane
	@scripts/test-runner --begin
	$(call phase,lint,cargo fmt --all --check && scripts/boundaries && $(layers) && cargo clippy --locked --workspace --all-targets -- -D warnings)
	$(call phase,unit and router tests,$(call changed,crates) && BROWSER_BIN=none cargo test $(runner) --lib --bins $${changed:---workspace})
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,$(build))
	$(call phase,end-to-end tests,$(call changed,tests) && RUST_TEST_THREADS=$(threads) $(control_plane) $(tests) --test=suite --no-fail-fast -- $${changed:---exact $(first)})
	@scripts/test-runner --end

# One after the other: each takes the machine for itself.
.PHONY: test-all
test-all: ## Run everything at full size, in about three hours: all tests, faults, the oldest Kubernetes, a soak, and real GitOps tools where it can
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory faults
	$(MAKE) --no-print-directory test-versions KUBERNETES=$(oldest)
	$(MAKE) --no-print-directory soak MINUTES=15
	$(call where_it_can,test-clients)

.PHONY: test-versions
test-versions: ## Run the tests on each version of Kubernetes, and the oldest Helm; KUBERNETES=1.30 on one, TEST=name picks by name
	@scripts/need rust cc jq control-plane
	@scripts/test-runner --begin
	$(call phase,control plane,$(call build_control_plane,$(or $(KUBERNETES),$(versions))) >/dev/null)
	$(call phase,build,$(build))
	$(if $(TEST),,$(call phase,oldest Helm,scripts/go-program oldest-helm >/dev/null))
	$(call phase,on the oldest Helm,RERUN='make test-versions' $(tests) --test=suite -- --ignored $(TEST))
	$(foreach version,$(or $(KUBERNETES),$(versions)),$(call phase,on Kubernetes $(version),$(call on,$(version),$(TEST)))$(newline))

# The file of values for all operators of a longer run.
values = $(if $(VALUES),POD_RELOADER_VALUES=$(abspath $(VALUES)))

.PHONY: soak
soak: ## Keep users and operator busy while something breaks each minute; MINUTES=15 WORKLOADS=2000 SEED=n VALUES=file
	@scripts/need rust cc control-plane
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,$(build))
	$(call phase,soak,$(values) $(built)/soak $(if $(MINUTES),--minutes=$(MINUTES)) \
	  $(if $(WORKLOADS),--workloads=$(WORKLOADS)) $(if $(SEED),--seed=$(SEED)))

# Not a part of make test: it builds another operator, and takes a quarter of an hour.
.PHONY: test-upgrade
test-upgrade: ## Upgrade from FROM=commit with 500 workloads, then switch each feature on and off; WORKLOADS=1000 FEATURES=pin,sync
	@scripts/need rust cc control-plane
	$(call phase,earlier version,scripts/earlier '$(FROM)')
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,$(build))
	$(call phase,upgrade,$(built)/upgrade --from="$$(scripts/earlier '$(FROM)')" $(if $(WORKLOADS),--workloads=$(WORKLOADS)) \
	  $(if $(FEATURES),--features='$(FEATURES)'))

# One after the other: each takes the machine for itself.
.PHONY: faults
faults: ## Run the tests of faults, and others that have a full size, at that size: thousands of workloads, minutes of waiting; VALUES=file
	@scripts/need rust cc control-plane
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,$(build))
	$(call phase,faults,$(values) FULL=1 RUST_TEST_THREADS=1 $(control_plane) cargo test --workspace --test=suite --no-fail-fast -- $(or $(TEST),$(faults)))

# $(call node_programs,NAME): the phase NAME that builds what a real node runs.
node_programs = $(call phase,$(1),e2e/control-plane/build.sh --for=cluster >/dev/null && scripts/go-program registry >/dev/null && scripts/go-program crane >/dev/null)
# What a real node takes: its programs, and the image of the operator, unless a variable names one or a program for it.
define real_node
$(call node_programs,control plane and node)
$(if $(POD_RELOADER_IMAGE_LAYOUT)$(POD_RELOADER_IMAGE_PROGRAM),,$(MAKE) --no-print-directory image ARCHS=$(arch))
endef

# The version from which the test of upgrades begins: the commit before the newest change of what the chart renders, unless
# FROM names one. A clone without history has none, and TEST may name other tests: then values alone are upgraded.
rendered := templates files values.yaml presets.yaml
begins_at = $(or $(FROM),$$(git rev-list -1 HEAD -- $(rendered:%=charts/pod-reloader/%) 2>/dev/null)~1)
define build_earlier
from=$(begins_at); if [ -z '$(FROM)' ] && ! git rev-parse --verify --quiet "$$from^{commit}" >/dev/null; then \
  echo "there is no commit $$from" >&2; \
else scripts/earlier "$$from"; fi
endef
upgrades := $(or $(FROM),$(if $(TEST),$(findstring upgrade,$(TEST)),all))
earlier = $(if $(upgrades),POD_RELOADER_EARLIER="$$($(build_earlier))")

.PHONY: cluster
cluster: ## Run a cluster with a real node until Ctrl-C, as root on Linux, with a debug build of the operator; KEEP=1 leaves data and logs behind
	@scripts/need rust cc cluster
	@echo 'The first run takes about twenty minutes on two cores: fifteen of them for the control plane and the programs of the node. Later runs take one.'
	$(call node_programs,1 of 3: control plane and node)
	$(call phase,2 of 3: build,cargo build -p pod-reloader -p kubectl-pod-reloader -p $(e2e) --bin pod-reloader --bin kubectl-pod_reloader --bin cluster)
	$(call phase,3 of 3: cluster,$(quick_cluster) $(kept))

# Not a part of make test, but for `smoke::`: it needs root, and programs and an image that nothing else needs.
.PHONY: test-real
test-real: ## Test with pods that really run, as root on Linux; TEST=name picks by name, FROM=commit is upgraded from
	@scripts/need rust cc jq cluster
	@scripts/test-runner --begin
	$(real_node)
	$(if $(upgrades),$(call phase,earlier version,$(build_earlier)))
	$(call phase,build,$(build) --test=isolation)
	$(call phase,tests on a real node,RERUN='make test-real' POD_RELOADER_NEEDS_REAL_NODE=1 $(earlier) RUST_TEST_THREADS=1 $(cluster) -- $(tests) --test=real --no-fail-fast $(addprefix -- ,$(TEST)))
	$(call phase,isolation of clusters,RERUN='make test-real' POD_RELOADER_NEEDS_REAL_NODE=1 RUST_TEST_THREADS=1 $(tests) --test=isolation --no-fail-fast $(addprefix -- ,$(TEST)))
	@scripts/test-runner --end

# The programs of others that the tests run, as scripts/go-program names them.
clients := argo flux kyverno

# Not a part of make test: it builds these programs.
.PHONY: test-clients
test-clients: ## Test under real GitOps tools, Kyverno and Helm, with pods that run, as root on Linux; TEST=name picks by name
	@scripts/need rust cc jq clients
	@scripts/test-runner --begin
	$(real_node)
	$(call phase,Helm 3,e2e/control-plane/build.sh >/dev/null)
	$(call phase,programs of others,$(foreach client,$(clients),scripts/go-program $(client) >/dev/null &&) true)
	$(call phase,build,$(build) --test=clients)
	$(call phase,tests under real clients,RERUN='make test-clients' POD_RELOADER_NEEDS_REAL_NODE=1 RUST_TEST_THREADS=1 $(cluster) -- $(tests) --test=clients --no-fail-fast $(addprefix -- ,$(TEST)))
	@scripts/test-runner --end

.PHONY: bench
bench: ## Measure the operator beside a floor; QUICK=1 in two minutes, PARTS=changes,memory for some, WORKLOADS=100000 for scale, VALUES=file
	@scripts/need rust cc control-plane
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,operator,scripts/static-binary $(arch) $(image_binary))
	$(call phase,build,CARGO_PROFILE_RELEASE_LTO=thin cargo build --release -p $(e2e) -p kubectl-pod-reloader --bin bench --bin kubectl-pod_reloader)
	$(if $(or $(PARTS),$(QUICK)),,$(MAKE) --no-print-directory bench-rules)
	$(call phase,bench,$(values) POD_RELOADER_BIN=$(abspath $(image_binary)) $(or $(CARGO_TARGET_DIR),target)/release/bench \
	  $(if $(filter 1,$(QUICK)),--quick) $(if $(PARTS),--only=$(PARTS)) $(if $(WORKLOADS),--workloads=$(WORKLOADS)))

# With an image of the operator of all other tests, in place of that of `make image`, which takes minutes to build.
quick_cluster = POD_RELOADER_NEEDS_REAL_NODE=1 POD_RELOADER_IMAGE_PROGRAM=$(abspath $(built))/pod-reloader $(cluster)

.PHONY: smoke
smoke: ## Test in short with pods that really run, and a debug build of the operator; make test ends with it where it can
	@scripts/need rust cc cluster
	$(call node_programs,control plane and node)
	$(call phase,build,$(build))
	$(call phase,on a real node,RERUN='make smoke' RUST_TEST_THREADS=1 $(quick_cluster) -- $(tests) --test=real -- smoke::)

# $(call where_it_can,TARGET): leaves it out, and says why, where the machine lacks something for a real node.
define where_it_can
@lacks=2; if why=$$(scripts/need cluster 2>&1); then lacks=0; why=$$($(cluster) --check 2>&1) || lacks=$$?; fi; \
case $$lacks in \
  0) $(MAKE) --no-print-directory $(1) ;; \
  2) echo "==> on a real node: left out, $$(echo "$$why" | head -n 1)" ;; \
  *) echo "$$why" >&2; exit 1 ;; \
esac
endef

.PHONY: lint
lint: $(cargo_deny) ## Check format, lints, crate boundaries, prose, the table of contents, dependencies and docs; ADVISORIES=folder names a clone of RustSec's database
	@scripts/need rust cc rustfmt clippy
	$(call phase,format,cargo fmt --all --check)
	$(call phase,boundaries,scripts/boundaries)
	$(call phase,house,scripts/house)
	$(call phase,prose,scripts/prose)
	$(call phase,site,scripts/site check)
	$(call phase,layers,$(layers))
	$(call phase,dependencies,$(cargo_deny) --locked check --hide-inclusion-graph bans licenses sources)
	$(call phase,advisories,ADVISORIES='$(ADVISORIES)' REQUIRE='$(REQUIRE)' scripts/advisories $(cargo_deny))
	$(call phase,clippy,cargo clippy --locked --workspace --all-targets -- -D warnings)
	$(call phase,each program alone,for program in pod-reloader kubectl-pod-reloader; do cargo check --locked -p $$program || exit 1; done)
	$(call phase,docs,RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps)
	$(if $(shell command -v shellcheck),$(call phase,scripts,shellcheck $(scripts)))

# Without optimisation: built in half the time, and it runs for a second either way.
$(cargo_deny_root)/bin/cargo-deny:
	@scripts/need rust cc
	$(call phase,build cargo-deny,cargo install --debug --locked --root $(cargo_deny_root) cargo-deny@$(cargo_deny_version))

.PHONY: compiler-cache
compiler-cache: $(sccache_root)/bin/sccache ## Build sccache, by which each new clone of this machine compiles the crates of others in a fraction of the time

$(sccache_root)/bin/sccache:
	@scripts/need rust cc
	$(call phase,build sccache,cargo install --locked --root $(sccache_root) --no-default-features sccache@$(sccache_version))

.PHONY: fuzz
fuzz: $(cargo_fuzz) $(fuzz_words) ## Look for inputs that break the rules, with each target for SECONDS=60
	@scripts/need rust cc c++
	$(call phase,build,$(call cargo_fuzz_at,build))
	$(foreach target,$(fuzz_targets),$(call phase,$(target),$(call fuzz,$(target)))$(newline))

# What libFuzzer puts in: the words of a list, and the names of our annotations and labels.
$(fuzz_words): fuzz/words.dict crates/pod-reloader-core/src/annotations.rs
	mkdir -p $(@D)
	{ cat fuzz/words.dict && grep -oE '"pod-reloader\.cs\.sap\.com/[a-z-]+"' $(lastword $^); } > $@

$(cargo_fuzz_root)/bin/cargo-fuzz:
	@scripts/need rust cc
	$(call phase,build cargo-fuzz,cargo install --debug --locked --root $(cargo_fuzz_root) cargo-fuzz@$(cargo_fuzz_version))

.PHONY: fmt
fmt: ## Format the code
	@scripts/need rust rustfmt
	cargo fmt --all

.PHONY: golden
golden: ## Write the CRDs, what the chart renders, and the tables of values, flags and fields, where tests compare them
	@scripts/need rust cc control-plane
	UPDATE_GOLDEN=1 cargo test -p pod-reloader-api -p pod-reloader-settings
	UPDATE_GOLDEN=1 cargo test --workspace --test=suite -- --exact chart::goldens::every_file_of_values_renders_what_it_did_before chart::the_documented_values_are_those_of_the_chart

.PHONY: screenshot
screenshot: ## Write the picture of the graph's page in the docs
	@scripts/need rust cc
	$(call phase,browser,scripts/browser)
	$(call phase,screenshot,$(browser) cargo test -p kubectl-pod-reloader -- --ignored --exact picture::on_screen::the_shop_as_in_the_docs)

.PHONY: site
site: $(mdbook) ## Make a website of the docs, with a search: target/site/book
	$(call phase,site,$(places) MDBOOK=$(mdbook) scripts/site build $(site))
	@echo 'The site is in $(site)/book. Open index.html there.'

# Without optimisation, as cargo-deny, and without its server.
$(mdbook_root)/bin/mdbook:
	@scripts/need rust cc
	$(call phase,build mdBook,cargo install --debug --locked --root $(mdbook_root) --no-default-features --features search mdbook@$(mdbook_version))

.PHONY: manifests
manifests: ## Render the bases for kustomize from the chart, of which a release makes the plain manifests
	@scripts/need rust cc control-plane
	UPDATE_GOLDEN=1 cargo test --workspace --test=suite -- --exact manifests::the_manifests_are_what_the_chart_renders

.PHONY: bench-rules
bench-rules: ## Measure the rules: how long each takes, and the instructions of the paths that run most
	@scripts/need rust cc
	$(call phase,rules,cargo bench -p pod-reloader-core --bench rules)
	$(call phase,instructions,cargo test -p pod-reloader-core --test instructions)

.PHONY: instructions
instructions: ## Write how many instructions the rules take, where a test compares them
	@scripts/need rust cc valgrind
	UPDATE_INSTRUCTIONS=1 cargo test -p pod-reloader-core --test instructions

.PHONY: build
build: ## Build the operator for use: target/release/pod-reloader
	@scripts/need rust cc
	$(call phase,build,cargo build --release -p pod-reloader)

.PHONY: image
image: $(cargo_cyclonedx) ## Write the image for amd64 and arm64 into a folder, without an engine; ARCHS=amd64 for one of them
	@scripts/need rust cc jq
	$(foreach arch,$(ARCHS),$(call program,$(arch),pod-reloader)$(newline))
	$(call phase,image,$(dated) $(places) scripts/image-layout $(built_image) $(version) $(ARCHS))
	@echo 'The image is in $(built_image)/layout. make push IMAGE=REGISTRY/NAME:TAG pushes it.'

.PHONY: push
push: ## Push that image; IMAGE=registry.example.com/pod-reloader:0.1.0 names it
	@scripts/need jq
	@scripts/push image $(built_image)/layout '$(named_image)'

.PHONY: login
login: ## Log in for make push, if you have neither podman nor docker; REGISTRY=host USERNAME=name, and the password on stdin
	@crane=$$(scripts/go-program crane) && "$$crane" auth login '$(or $(REGISTRY),$(firstword $(subst /, ,$(IMAGE))))' --username='$(USERNAME)' --password-stdin

.PHONY: engine-image
engine-image: ## Build the image with podman, buildah or docker instead; IMAGE=name names it
	@[ -n "$(engine)" ] || { echo "missing: podman, buildah or docker" >&2; exit 1; }
	$(call phase,image,$(engine) build --file Containerfile --tag $(or $(named_image),pod-reloader:$(version)) \
	  --build-arg VERSION=$(version) --build-arg SOURCE=$(SOURCE) .)

.PHONY: release
release: $(cargo_cyclonedx) $(cargo_deny) ## Write everything that users download into target/release-x.y.z; VERSION=x.y.z, KEY=file or KEYLESS=1 signs it, KEYLESS=later leaves that to make sign, and REQUIRE=1 refuses what is not decided yet
	@scripts/need rust cc jq
	$(call phase,release check,$(places) REQUIRE='$(REQUIRE)' scripts/release check '$(VERSION)')
	$(call phase,advisories,ADVISORIES='$(ADVISORIES)' REQUIRE='$(REQUIRE)' scripts/advisories $(cargo_deny))
	$(foreach arch,amd64 arm64,$(call program,$(arch),pod-reloader)$(newline)$(call program,$(arch),kubectl-pod_reloader)$(newline))
	$(call phase,image,$(dated) $(places) scripts/image-layout $(built_image) $(VERSION) amd64 arm64)
	$(call phase,release,$(dated) $(places) $(signing) BUILT=$(built_image) scripts/release assemble '$(VERSION)' $(release))

.PHONY: sign
sign: ## Sign that release, if it was made with KEYLESS=later and nobody has changed it since; VERSION=x.y.z KEYLESS=1
	@scripts/need jq
	@$(signing) scripts/sign release $(release)

.PHONY: publish
publish: ## Push image and chart of that release to where release.env says; VERSION=x.y.z, and KEY=file or KEYLESS=1 signs them
	@scripts/need jq
	@$(places) $(signing) scripts/publish '$(VERSION)' $(release)

# Not a part of make test: the release takes many minutes to build, and so do programs that only this needs.
.PHONY: release-check
release-check: ## Use that release as its users do: a registry, pods, Helm, kubectl; VERSION=x.y.z, and TWICE=1 makes it twice
	@scripts/need rust cc jq control-plane
	$(call phase,control plane,e2e/control-plane/build.sh --for=demo >/dev/null)
	$(call phase,build,cargo build -p $(e2e) --bin control-plane --bin cluster)
	$(call phase,release check,CONTROL_PLANE=$(abspath $(built))/control-plane TWICE='$(TWICE)' $(places) $(signing) \
	  scripts/release-check '$(VERSION)' $(release))
	$(call where_it_can,release-check-on-node)
	@echo '$(release): good to be published'

.PHONY: release-check-on-node
release-check-on-node: ## Install that release from a registry with pods that really run, as root on Linux; release-check ends with it where it can; VERSION=x.y.z
	@scripts/need rust cc jq cluster
	$(call node_programs,control plane and node)
	$(call phase,build,cargo build -p $(e2e) --bin cluster)
	$(call phase,release on a real node,POD_RELOADER_NEEDS_REAL_NODE=1 POD_RELOADER_IMAGE_LAYOUT=$(abspath $(built_image))/layout \
	  $(cluster) -- scripts/release-check-on-node '$(VERSION)' $(release))

# Without optimisation, as cargo-deny.
$(cargo_cyclonedx_root)/bin/cargo-cyclonedx:
	@scripts/need rust cc
	$(call phase,build cargo-cyclonedx,cargo install --debug --locked --root $(cargo_cyclonedx_root) cargo-cyclonedx@$(cargo_cyclonedx_version))

.PHONY: image-check
image-check: ## Run what the image holds as it runs there, without an engine
	@scripts/need rust cc
	$(call phase,static binary,scripts/static-binary $(arch) $(image_binary))
	$(call phase,image check,scripts/image-check $(image_binary))

.PHONY: control-plane
control-plane: ## Build the control plane of tests and demo, once for all clones; KUBERNETES=1.32 for one more version
	@scripts/need control-plane
	$(call phase,control plane,$(call build_control_plane,$(or $(KUBERNETES),$(oldest))))

.PHONY: clean
clean: ## Remove what cargo built; the cached control plane stays
	cargo clean

# $(call cargo_fuzz_at,COMMAND): without a sanitizer, as no code here is unsafe, so that stable Rust does.
cargo_fuzz_at = $(cargo_fuzz) $(1) --fuzz-dir fuzz --sanitizer none

# $(call fuzz,TARGET): what it finds is in fuzz/artifacts, and the inputs that it keeps in fuzz/corpus.
define fuzz
mkdir -p fuzz/corpus/$(1) && $(call cargo_fuzz_at,run) $(1) fuzz/corpus/$(1) $(wildcard fuzz/seeds/$(1)) -- \
  -dict=$(fuzz_words) -max_total_time=$(SECONDS) -print_final_stats=1 -verbosity=0
endef

# $(call program,ARCH,BINARY): builds it as one static file, with its bill of materials and the licences of its crates.
define program
$(call phase,$(2) for $(1),scripts/static-binary $(1) $(built_image)/$(1)/$(2) $(2) && \
  $(dated) CARGO_CYCLONEDX=$(cargo_cyclonedx) scripts/sbom $(1) $(built_image)/$(1)/$(2).cdx.json $(2) && \
  scripts/licences $(1) $(built_image)/$(1)/$(2).licenses.txt $(2))
endef

define newline


endef

# $(call phase,NAME,COMMAND): runs a command, and says what runs and how long it took.
define phase
@echo '==> $(1)'; began=$$(date +%s); took() { echo "$$(($$(date +%s) - began)) s"; }; \
{ $(2); } || { echo "==> $(1): FAILED after $$(took)" >&2; exit 1; }; \
echo "==> $(1): $$(took)"
endef

# What one does in this repository: `make help` lists it.

.DEFAULT_GOAL := help

e2e := pod-reloader-e2e
crates := layers pod-reloader-api pod-reloader-core pod-reloader-settings webhook-certs pod-reloader kubectl-pod-reloader pod-reloader-browser $(e2e)
scripts := .ci/run scripts/need scripts/browser scripts/prometheus scripts/boundaries scripts/static-binary scripts/image-check scripts/test-runner e2e/control-plane/build.sh e2e/tests/suite/docs/prelude.sh
# Not by `cargo run`: its variables would make the cargo inside compile ring again, every time.
built := $(or $(CARGO_TARGET_DIR),target)/debug
control_plane := $(built)/control-plane --

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
fuzz_targets := $(notdir $(basename $(wildcard fuzz/targets/*.rs)))
# For each of them.
SECONDS := 60

version := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
arch := $(if $(filter arm64 aarch64,$(shell uname -m)),arm64,amd64)
image_binary := $(or $(CARGO_TARGET_DIR),target)/image/$(arch)/pod-reloader

# BROWSER=none and PROMETHEUS=none do without: the tests that need them say so and do nothing.
ifeq ($(BROWSER),none)
export BROWSER_BIN := none
endif
ifeq ($(PROMETHEUS),none)
export PROMETHEUS_BIN := none
endif
browser := BROWSER_BIN=$$(scripts/browser 2>/dev/null)

engine := $(firstword $(foreach engine,podman buildah docker,$(shell command -v $(engine))))
IMAGE := pod-reloader:$(version)
# Where the image says that its source is.
SOURCE :=

# End-to-end tests spend half of their time waiting. With more at once, the machine is busy throughout.
threads := 6
# The folder in which scripts/test-runner notes how long each test takes, and which are unsteady.
export TEST_RECORDS := $(abspath $(or $(CARGO_TARGET_DIR),target))/test-records
tests := cargo test --config 'target."cfg(all())".runner="scripts/test-runner"'

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

# Files of tests that run on the older kube-apiserver, which has no MutatingAdmissionPolicy.
on_older_always := clients:: pending:: rbac:: pins::unpinned:: pins::pods::by_the_webhook protect::always:: bind::guards:: sync::guards::
on_older_too := contents:: input:: modes:: order:: races:: restart:: secrecy:: takeover:: unknown:: certificates:: scope::
# They take the machine for themselves, and the others would wait too long for it.
floods := rolling:: server:: tenant::
faults := answer_faults:: apiserver_faults:: etcd_faults:: leaders:: namespaces:: replicas:: restart:: rolling:: server:: share:: storm:: reverted_hash:: sync::copies:: sync::faults:: tenant::
on_older = RERUN='make test-older' RUST_TEST_THREADS=$(threads) $(control_plane:%--=%--older --) $(tests) -p $(e2e) --test suite --no-fail-fast -- $(1)

.PHONY: help
help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | \
	  while IFS='|' read -r target text; do printf 'make %-14s %s\n' "$$target" "$$text"; done

.PHONY: demo
demo: ## Show the operator on a control plane of its own; KEEP=1 leaves it running
	@scripts/need rust cc demo
	@echo 'The first run takes about seven minutes on two cores: five for the control plane, one and a half for the operator. Later runs take one.'
	$(call phase,1 of 3: control plane,e2e/control-plane/build.sh --for=demo >/dev/null)
	$(call phase,2 of 3: build,cargo build -p pod-reloader -p $(e2e) --bin pod-reloader --bin demo)
	$(call phase,3 of 3: demo,$(built)/demo $(if $(filter 1,$(KEEP)),--keep))

.PHONY: test
test: ## Run all tests, the last of them on a real control plane; TEST=name picks by name, BROWSER=none and PROMETHEUS=none do without these
	@scripts/need rust cc jq control-plane
	@scripts/test-runner --begin
	$(call phase,browser and Prometheus,scripts/browser && scripts/prometheus)
	$(call phase,unit and router tests,$(browser) $(tests) $(TEST))
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,cargo build -p pod-reloader -p kubectl-pod-reloader -p $(e2e))
	$(call phase,end-to-end tests,$(browser) RUST_TEST_THREADS=$(threads) $(control_plane) $(tests) -p $(e2e) --no-fail-fast $(or $(TEST),-- $(addprefix --skip=,$(floods))))
	$(if $(TEST),,$(call phase,floods,RUST_TEST_THREADS=2 $(control_plane) $(tests) -p $(e2e) --test suite --no-fail-fast -- $(floods)))
	$(if $(TEST),,$(call phase,on an older apiserver,$(call on_older,$(on_older_always) --skip=pins::clients::)))
	@scripts/test-runner --end

.PHONY: check
check: ## Run the quick checks, in three minutes: clippy, unit tests, and an end-to-end test of each part
	@scripts/need rust cc rustfmt clippy control-plane
	@scripts/test-runner --begin
	$(call phase,lint,cargo fmt --all --check && scripts/boundaries && $(layers) && cargo clippy --locked --workspace --all-targets -- -D warnings)
	$(call phase,unit and router tests,BROWSER_BIN=none $(tests) --lib --bins)
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,cargo build -p pod-reloader -p kubectl-pod-reloader -p $(e2e))
	$(call phase,end-to-end tests,RUST_TEST_THREADS=$(threads) $(control_plane) $(tests) -p $(e2e) --test suite --no-fail-fast -- --exact $(first))
	@scripts/test-runner --end

.PHONY: test-older
test-older: ## Run what does not need the newest Kubernetes on an older kube-apiserver, all of it
	@scripts/need rust cc control-plane
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,cargo build -p pod-reloader -p kubectl-pod-reloader -p $(e2e))
	$(call phase,on an older apiserver,$(call on_older,$(or $(TEST),$(on_older_always) $(on_older_too))))

.PHONY: soak
soak: ## Keep users and operator busy while something breaks each minute; MINUTES=15 WORKLOADS=2000 SEED=n
	@scripts/need rust cc control-plane
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,cargo build -p pod-reloader -p kubectl-pod-reloader -p $(e2e))
	$(call phase,soak,cargo run --quiet -p $(e2e) --bin soak -- $(if $(MINUTES),--minutes=$(MINUTES)) \
	  $(if $(WORKLOADS),--workloads=$(WORKLOADS)) $(if $(SEED),--seed=$(SEED)))

# One after the other: each takes the machine for itself.
.PHONY: faults
faults: ## Run the tests of faults at their full size: thousands of workloads, minutes of waiting
	@scripts/need rust cc control-plane
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,cargo build -p pod-reloader -p kubectl-pod-reloader -p $(e2e))
	$(call phase,faults,FULL=1 RUST_TEST_THREADS=1 $(control_plane) cargo test -p $(e2e) --test suite --no-fail-fast -- $(or $(TEST),$(faults)))

.PHONY: bench
bench: ## Measure the operator beside a floor; QUICK=1 in two minutes, PARTS=changes,memory for some
	@scripts/need rust cc control-plane
	$(call phase,control plane,e2e/control-plane/build.sh >/dev/null)
	$(call phase,build,cargo build --release -p pod-reloader -p $(e2e) --bin pod-reloader --bin bench)
	$(if $(or $(PARTS),$(QUICK)),,$(MAKE) --no-print-directory bench-rules)
	$(call phase,bench,$(or $(CARGO_TARGET_DIR),target)/release/bench $(if $(filter 1,$(QUICK)),--quick) $(if $(PARTS),--only=$(PARTS)))

.PHONY: lint
lint: $(cargo_deny) ## Check format, lints, crate boundaries, dependencies and docs
	@scripts/need rust cc rustfmt clippy
	$(call phase,format,cargo fmt --all --check)
	$(call phase,boundaries,scripts/boundaries)
	$(call phase,layers,$(layers))
	$(call phase,dependencies,$(cargo_deny) --locked check --hide-inclusion-graph bans licenses sources)
	$(call phase,clippy,cargo clippy --locked --workspace --all-targets -- -D warnings)
	$(call phase,each crate alone,for crate in $(crates); do cargo check -p $$crate || exit 1; done)
	$(call phase,docs,RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps)
	$(if $(shell command -v shellcheck),$(call phase,scripts,shellcheck $(scripts)))

# Without optimisation: built in half the time, and it runs for a second either way.
$(cargo_deny_root)/bin/cargo-deny:
	@scripts/need rust cc
	$(call phase,build cargo-deny,cargo install --debug --locked --root $(cargo_deny_root) cargo-deny@$(cargo_deny_version))

.PHONY: fuzz
fuzz: $(cargo_fuzz) ## Look for inputs that break the rules, with each target for SECONDS=60
	@scripts/need rust cc c++
	$(call phase,build,$(call cargo_fuzz_at,build))
	$(foreach target,$(fuzz_targets),$(call phase,$(target),$(call fuzz,$(target)))$(newline))

$(cargo_fuzz_root)/bin/cargo-fuzz:
	@scripts/need rust cc
	$(call phase,build cargo-fuzz,cargo install --debug --locked --root $(cargo_fuzz_root) cargo-fuzz@$(cargo_fuzz_version))

.PHONY: fmt
fmt: ## Format the code
	@scripts/need rust rustfmt
	cargo fmt --all

.PHONY: golden
golden: ## Write the CRD, what the chart renders, and the table of its values, where tests compare them
	@scripts/need rust cc control-plane
	UPDATE_GOLDEN=1 cargo test -p pod-reloader-api
	UPDATE_GOLDEN=1 cargo test -p $(e2e) --test suite -- --exact chart::every_file_of_values_renders_what_it_did_before chart::the_documented_values_are_those_of_the_chart

.PHONY: screenshot
screenshot: ## Write the picture of the graph's page in the docs
	@scripts/need rust cc
	$(call phase,browser,scripts/browser)
	$(call phase,screenshot,$(browser) cargo test -p kubectl-pod-reloader -- --ignored --exact graph::on_screen::the_shop_as_in_the_docs)

.PHONY: manifests
manifests: ## Render the plain manifests from the chart
	@scripts/need rust cc control-plane
	UPDATE_GOLDEN=1 cargo test -p $(e2e) --test suite -- --exact manifests::the_manifests_are_what_the_chart_renders

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
image: ## Build the image with podman, buildah or docker; IMAGE=name names it
	@[ -n "$(engine)" ] || { echo "missing: podman, buildah or docker" >&2; exit 1; }
	$(call phase,image,$(engine) build --file Containerfile --tag $(IMAGE) \
	  --build-arg VERSION=$(version) --build-arg SOURCE=$(SOURCE) .)

.PHONY: image-check
image-check: ## Run what the image holds as it runs there, without an engine
	@scripts/need rust cc
	$(call phase,static binary,scripts/static-binary $(arch) $(image_binary))
	$(call phase,image check,scripts/image-check $(image_binary))

.PHONY: control-plane
control-plane: ## Build the control plane of tests and demo, once for all clones
	@scripts/need control-plane
	$(call phase,control plane,e2e/control-plane/build.sh)

.PHONY: clean
clean: ## Remove what cargo built; the cached control plane stays
	cargo clean

# $(call cargo_fuzz_at,COMMAND): without a sanitizer, as no code here is unsafe, so that stable Rust does.
cargo_fuzz_at = $(cargo_fuzz) $(1) --fuzz-dir fuzz --sanitizer none

# $(call fuzz,TARGET): what it finds is in fuzz/artifacts, and the inputs that it keeps in fuzz/corpus.
define fuzz
mkdir -p fuzz/corpus/$(1) && $(call cargo_fuzz_at,run) $(1) fuzz/corpus/$(1) $(wildcard fuzz/seeds/$(1)) -- \
  -dict=fuzz/words.dict -max_total_time=$(SECONDS) -print_final_stats=1 -verbosity=0
endef

define newline


endef

# $(call phase,NAME,COMMAND): runs a command, and says what runs and how long it took.
define phase
@echo '==> $(1)'; began=$$(date +%s); took() { echo "$$(($$(date +%s) - began)) s"; }; \
{ $(2); } || { echo "==> $(1): FAILED after $$(took)" >&2; exit 1; }; \
echo "==> $(1): $$(took)"
endef

#!/usr/bin/env bash
# Builds the programs of the end-to-end control plane once, into a cache that all clones share.
#
#   build.sh           build what is missing, then print the folder of the programs
#   build.sh --where   print that folder if it is complete, else fail; needs no Go
#
# The folder is the last line of stdout; everything else goes to stderr.
# Each program is built to a temporary name and renamed, so an interrupted build resumes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pod-reloader/control-plane

# name, folder of its go.mod, package, module that gives its version
programs=(
  "etcd                    .            go.etcd.io/etcd/server/v3                   go.etcd.io/etcd/server/v3"
  "kube-apiserver          .            k8s.io/kubernetes/cmd/kube-apiserver          k8s.io/kubernetes"
  "kube-controller-manager .            k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes"
  "kube-scheduler          .            k8s.io/kubernetes/cmd/kube-scheduler          k8s.io/kubernetes"
  "kubectl                 .            k8s.io/kubernetes/cmd/kubectl                 k8s.io/kubernetes"
  "kwok                    .            sigs.k8s.io/kwok/cmd/kwok                     sigs.k8s.io/kwok"
  "cert-manager            cert-manager .                                           github.com/cert-manager/cert-manager"
  "helm                    helm         helm.sh/helm/v4/cmd/helm                      helm.sh/helm/v4"
  "helm3                   older        helm.sh/helm/v3/cmd/helm                      helm.sh/helm/v3"
  "kube-apiserver-1.34     older        k8s.io/kubernetes/cmd/kube-apiserver          k8s.io/kubernetes"
)
# What KUBEBUILDER_ASSETS holds by convention; taken from there rather than built.
assets=(etcd kube-apiserver kubectl)
# How kwok plays kubelets: files of its own module.
stages=(
  node/fast/node-initialize.yaml
  node/heartbeat/node-heartbeat.yaml
  pod/fast/pod-ready.yaml
  pod/fast/pod-complete.yaml
  pod/fast/pod-delete.yaml
)
# The types that cert-manager's controllers need: files of its own module.
crds=(
  cert-manager.io_certificaterequests.yaml
  cert-manager.io_certificates.yaml
  cert-manager.io_clusterissuers.yaml
  cert-manager.io_issuers.yaml
)
heartbeat_seconds=15
# What a build from nothing takes: downloaded modules, Go's build cache, the programs.
needed_megabytes=11000

main() {
  local mode=${1:-build}
  built=$cache/$(key)/bin
  case $mode in
    build) build_all ;;
    --where) ;;
    *) fail "unknown argument $mode; see the head of ${BASH_SOURCE[0]}" ;;
  esac
  local missing
  missing=$(missing_files | tr '\n' ' ')
  [ -z "$missing" ] || fail "not built yet: ${missing}- run 'make control-plane'"
  served_folder
}

# Changes whenever anything changes that the programs are made from.
key() {
  (
    cd "$here"
    find . \( -name 'go.*' -o -name '*.go' \) -type f | LC_ALL=C sort | xargs cat
    declare -p programs stages crds
    declare -f build stamps
    uname -sm
  ) | checksum
}

checksum() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -c1-16
}

build_all() {
  [ -n "$(missing_files)" ] || return 0
  mkdir -p "$built" || fail "cannot write to $built"
  take_lock
  [ -n "$(missing_files)" ] || return 0
  check_go
  check_disk
  say "building the control plane into $built: about twelve minutes on two cores, once"
  local line name module package versioned number=0
  for line in "${programs[@]}"; do
    read -r name module package versioned <<<"$line"
    number=$((number + 1))
    if ! is_asset "$name" && [ ! -x "$built/$name" ]; then
      build "[$number/${#programs[@]}]" "$name" "$module" "$package" "$versioned"
    fi
  done
  copy_files . sigs.k8s.io/kwok kustomize/stage stages "${stages[@]}"
  copy_files cert-manager github.com/cert-manager/cert-manager deploy/crds cert-manager-crds "${crds[@]}"
}

build() {
  local step=$1 name=$2 module=$3 package=$4 versioned=$5
  local version started log temporary status=0
  started=$SECONDS
  log=$built/.$name.log
  temporary=$built/.$name.$$
  cd "$here/$module"
  version=$(go list -m -f '{{.Version}}' "$versioned")
  say "$step $name $version ..."
  in_background "$step $name $version" "$log" "$started" \
    env CGO_ENABLED=0 go build -v -mod=readonly -trimpath -buildvcs=false \
    -ldflags "-s -w $(stamps "$versioned" "$version")" -o "$temporary" "$package" || status=$?
  [ $status -eq 0 ] || { rm -f "$temporary"; build_failed "$name" "$log"; }
  mv "$temporary" "$built/$name"
  rm -f "$log"
  say "$step $name $version: $((SECONDS - started)) s"
}

# Runs a command with its output in a log, and says at times that it is still at work.
in_background() {
  local title=$1 log=$2 started=$3 reported=$SECONDS
  shift 3
  "$@" >"$log" 2>&1 9>&- &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    if [ $((SECONDS - reported)) -ge $heartbeat_seconds ]; then
      reported=$SECONDS
      say "$title ... $((SECONDS - started)) s, $(wc -l <"$log" | tr -d ' ') steps, last $(tail -n 1 "$log")"
    fi
  done
  local status=0
  wait "$child" || status=$?
  child=
  return $status
}

# What the released binaries carry: the apiserver derives its feature gates from its version, and
# user agents show it.
stamps() {
  local version=$2 number package
  number=${version#v}
  case $1 in
    k8s.io/kubernetes)
      for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- '-X %s ' \
          "$package.gitVersion=$version" \
          "$package.gitMajor=${number%%.*}" \
          "$package.gitMinor=$(cut -d. -f2 <<<"$number")" \
          "$package.gitTreeState=clean"
      done
      ;;
    github.com/cert-manager/*) printf -- '-X %s/pkg/util.AppVersion=%s' "$1" "$version" ;;
    helm.sh/helm/*) printf -- '-X %s/internal/version.version=%s' "$1" "$version" ;;
  esac
}

# Copies files of a module next to the programs.
copy_files() {
  local module=$1 path=$2 source=$3 folder=$built/$4 file
  shift 4
  cd "$here/$module"
  source=$(go list -m -f '{{.Dir}}' "$path")/$source
  mkdir -p "$folder"
  for file in "$@"; do
    cp "$source/$file" "$folder/.new"
    chmod 644 "$folder/.new"
    mv "$folder/.new" "$folder/${file##*/}"
  done
}

# The folder to use: with KUBEBUILDER_ASSETS one of links, to its programs and to ours.
served_folder() {
  if [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
    echo "$built"
    return
  fi
  local folder file name
  folder=$built-$(printf %s "$KUBEBUILDER_ASSETS" | checksum)
  mkdir -p "$folder"
  for file in "$built"/*; do
    ln -sfn "$file" "$folder/${file##*/}"
  done
  for name in "${assets[@]}"; do
    if is_asset "$name"; then ln -sfn "$KUBEBUILDER_ASSETS/$name" "$folder/$name"; fi
  done
  echo "$folder"
}

is_asset() {
  [ -n "${KUBEBUILDER_ASSETS:-}" ] && [[ " ${assets[*]} " == *" $1 "* ]] && [ -x "$KUBEBUILDER_ASSETS/$1" ]
}

missing_files() {
  local line name rest stage crd
  for line in "${programs[@]}"; do
    read -r name rest <<<"$line"
    is_asset "$name" || [ -x "$built/$name" ] || echo "$name"
  done
  for stage in "${stages[@]}"; do
    [ -f "$built/stages/${stage##*/}" ] || echo "${stage##*/}"
  done
  for crd in "${crds[@]}"; do
    [ -f "$built/cert-manager-crds/$crd" ] || echo "$crd"
  done
}

take_lock() {
  command -v flock >/dev/null || return 0
  exec 9>"$built/.lock"
  if ! flock -n 9; then
    say "another build is at work on $built: waiting for it"
    flock 9
  fi
}

check_go() {
  local wanted
  wanted=$(sed -n 's/^go //p' "$here/go.mod" "$here"/*/go.mod | sort -V | tail -n 1)
  command -v go >/dev/null || fail "Go is missing: install Go $wanted or newer, https://go.dev/dl"
  # In a folder of the module, an older Go first looks for the toolchain that go.mod asks for.
  (cd "$here" && go version >/dev/null 2>"$built/.go.log") ||
    fail "Go $wanted or newer is needed: $(tail -n 1 "$built/.go.log")"
}

check_disk() {
  local folder free
  mkdir -p "$(go env GOCACHE)" "$(go env GOMODCACHE)"
  for folder in "$built" "$(go env GOCACHE)" "$(go env GOMODCACHE)"; do
    free=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge $needed_megabytes ] ||
      say "warning: $free MB free for $folder; a first build takes up to $needed_megabytes MB"
  done
}

build_failed() {
  local name=$1 log=$2
  tail -n 20 "$log" >&2
  if grep -q 'no space left on device' "$log"; then
    fail "the disk is full: $name needs more room in $built, $(go env GOCACHE) or $(go env GOMODCACHE)"
  fi
  fail "building $name failed; its whole output is in $log"
}

say() { echo "control-plane: $*" >&2; }

fail() {
  say "error: $*"
  exit 1
}

child=
trap '[ -z "$child" ] || kill "$child" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

main "$@"

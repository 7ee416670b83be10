#!/usr/bin/env bash
# Builds the programs of the end-to-end control plane once, into a cache that all clones share.
#
#   build.sh                      build what is missing, then print the folder of the programs
#   build.sh --for=demo           the same without what only tests need
#   build.sh --for=cluster        the same with what a real node needs: kubelet, containers, networks
#   build.sh --kubernetes=1.30    the same with another Kubernetes beside the current one, in a folder 1.30
#   build.sh --where              print that folder if it is complete, else fail; needs no Go
#
# The folder is the last line of stdout; everything else goes to stderr.
# Programs are built to a temporary folder and moved, so an interrupted build resumes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pod-reloader/control-plane

# name, who needs it, folder of its go.mod, package, module that gives its version.
# Those of one go.mod are built by one command: what they share is compiled once.
programs=(
  "etcd                    demo  .     go.etcd.io/etcd/server/v3                   go.etcd.io/etcd/server/v3"
  "kube-apiserver          demo  .     k8s.io/kubernetes/cmd/kube-apiserver          k8s.io/kubernetes"
  "kube-controller-manager demo  .     k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes"
  "kube-scheduler          demo  .     k8s.io/kubernetes/cmd/kube-scheduler          k8s.io/kubernetes"
  "kubectl                 demo  .     k8s.io/kubernetes/cmd/kubectl                 k8s.io/kubernetes"
  "kwok                    demo  .     sigs.k8s.io/kwok/cmd/kwok                     sigs.k8s.io/kwok"
  "cert-manager            demo  .     ./cert-manager                                github.com/cert-manager/cert-manager"
  "helm                    demo  .     helm.sh/helm/v4/cmd/helm                      helm.sh/helm/v4"
  "helm3                   tests helm3 helm.sh/helm/v3/cmd/helm                      helm.sh/helm/v3"
  "kubelet                 cluster .          k8s.io/kubernetes/cmd/kubelet    k8s.io/kubernetes"
  "kube-proxy              cluster .          k8s.io/kubernetes/cmd/kube-proxy k8s.io/kubernetes"
  "answers                 cluster .          ./answers                        k8s.io/kubernetes"
  "containerd              cluster containers github.com/containerd/containerd/v2/cmd/containerd github.com/containerd/containerd/v2"
  "containerd-shim-runc-v2 cluster containers github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2 github.com/containerd/containerd/v2"
  "ctr                     cluster containers github.com/containerd/containerd/v2/cmd/ctr github.com/containerd/containerd/v2"
  "bridge                  cluster containers github.com/containernetworking/plugins/plugins/main/bridge github.com/containernetworking/plugins"
  "loopback                cluster containers github.com/containernetworking/plugins/plugins/main/loopback github.com/containernetworking/plugins"
  "host-local              cluster containers github.com/containernetworking/plugins/plugins/ipam/host-local github.com/containernetworking/plugins"
  "portmap                 cluster containers github.com/containernetworking/plugins/plugins/meta/portmap github.com/containernetworking/plugins"
  "runc                    cluster runc       github.com/opencontainers/runc   github.com/opencontainers/runc"
)
# Other versions of Kubernetes, each with a go.mod of its own. They are built only on request.
for version in "$here"/versions/*; do
  version=${version##*/}
  for program in kube-apiserver kube-controller-manager kube-scheduler; do
    programs+=("$version/$program $version versions/$version k8s.io/kubernetes/cmd/$program k8s.io/kubernetes")
  done
done
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
# What a build from nothing takes: downloaded modules, Go's build cache, the programs.
needed_megabytes=9000

main() {
  local mode=build
  wanted=(demo tests)
  for argument; do
    case $argument in
      --where) mode=where ;;
      --for=demo) wanted=(demo) ;;
      --for=cluster) wanted=(demo cluster) ;;
      --kubernetes=*) want_version "${argument#--kubernetes=}" ;;
      *) fail "unknown argument $argument; see the head of ${BASH_SOURCE[0]}" ;;
    esac
  done
  built=$cache/$(key)/bin
  [ $mode = where ] || build_all
  local missing
  missing=$(missing_files | tr '\n' ' ')
  local how='make control-plane'
  [[ " ${wanted[*]} " != *" cluster "* ]] || how='e2e/control-plane/build.sh --for=cluster'
  [ -z "$missing" ] || fail "not built yet: ${missing}- run '$how'"
  served_folder
}

want_version() {
  [ -d "$here/versions/$1" ] || fail "no Kubernetes $1 here: there are $(cd "$here/versions" && echo *)"
  wanted+=("$1")
}

# Changes whenever anything changes that the programs are made from.
key() {
  (
    cd "$here"
    find . \( -name 'go.*' -o -name '*.go' \) -type f | LC_ALL=C sort | xargs cat
    declare -p programs stages crds
    declare -f build stamps all_stamps
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
  remove_left_behind
  check_go
  check_disk
  say "building $(wanted_programs | wc -l | tr -d ' ') programs of the control plane into $built, once: on two cores it takes about eight minutes, or five for the demo"
  local module
  for module in $(modules); do
    build "$module"
  done
  copy_files . sigs.k8s.io/kwok kustomize/stage stages "${stages[@]}"
  copy_files . github.com/cert-manager/cert-manager deploy/crds cert-manager-crds "${crds[@]}"
}

# What a build that was killed has left.
remove_left_behind() {
  local left
  for left in "$built"/.new.*; do
    kill -0 "${left##*.}" 2>/dev/null || rm -rf "$left"
  done
}

# Builds what is missing of one go.mod.
build() {
  local module=$1 name package log temporary flags names=() packages=()
  while read -r name package; do
    names+=("$name")
    packages+=("$package")
  done < <(missing_programs "$module")
  [ ${#names[@]} -gt 0 ] || return 0
  cd "$here/$module"
  log=$built/.build.$$.log
  temporary=$built/.new.$$
  mkdir -p "$temporary"
  flags=$(all_stamps "$module") || fail "go list cannot tell the versions of what is built in $here/$module: it needs the network, or the modules in its cache"
  # Nobody debugs these programs, so they have no DWARF, and the compiler rarely collects garbage. Both
  # together save a fifth of the time.
  local go=(env CGO_ENABLED=0 GOGC=800 go) tags=
  if [ "$module" = runc ]; then
    # A part of it is C. Without libseccomp it would refuse pods with a seccomp profile.
    go=(env CGO_ENABLED=1 GOGC=800 go)
    tags=seccomp
  fi
  in_background "looking for modules" 0 "$log" "${go[@]}" list -mod=readonly -tags "$tags" -deps "${packages[@]}" ||
    build_failed "$log"
  local count
  count=$(grep -vc '^go: ' "$log")
  in_background "building ${#names[@]} programs" "$count" "$log" "${go[@]}" build -v -mod=readonly -tags "$tags" -trimpath -buildvcs=false \
    -gcflags=all=-dwarf=false -ldflags "-s -w $flags" -o "$temporary/" "${packages[@]}" ||
    build_failed "$log"
  local index
  for index in "${!names[@]}"; do
    mkdir -p "$(dirname "$built/${names[index]}")"
    mv "$temporary/$(base "${packages[index]}")" "$built/${names[index]}"
  done
  rm -rf "$temporary" "$log"
}

# Prints the name that Go gives to the program of a package.
base() {
  local path=${1%/v[0-9]}
  echo "${path##*/}"
}

# Runs a command with its output in a log, and reports its progress: on one line of a terminal, else every
# half minute. With the number of lines that the log will have, it also estimates the time left.
in_background() {
  local title=$1 count=$2 log=$3 began=$SECONDS reported=$SECONDS status=0 every=30
  shift 3
  [ ! -t 2 ] || every=1
  # In a process group of its own, or else bash would start it with SIGINT ignored.
  set -m
  GOTMPDIR=$built/.new.$$ "$@" >"$log" 2>&1 </dev/null 9>&- &
  child=$!
  set +m
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    if [ $((SECONDS - reported)) -ge $every ]; then
      reported=$SECONDS
      report "$title: $(progress "$count" "$(wc -l <"$log" | tr -d ' ')" $((SECONDS - began)))"
    fi
  done
  wait "$child" || status=$?
  child=
  [ ! -t 2 ] || printf '\r\033[K' >&2
  [ $status -ne 0 ] || say "$title: $((SECONDS - began)) s"
  return $status
}

# Prints the progress. There is no estimate without a count, nor at the start.
progress() {
  local count=$1 steps=$2 seconds=$3
  if [ "$count" -eq 0 ]; then
    echo "$seconds s"
  elif [ $((steps + 10)) -gt "$count" ]; then
    echo "linking, $seconds s"
  elif [ "$steps" -lt 50 ]; then
    echo "$steps of $count packages, $seconds s"
  else
    echo "$steps of $count packages, $seconds s, about $((seconds * (count - steps) / steps)) s left"
  fi
}

report() {
  if [ -t 2 ]; then
    printf '\r\033[Kcontrol-plane: %s' "$*" >&2
  else
    say "$*"
  fi
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
    github.com/cert-manager/*) printf -- '-X %s/pkg/util.AppVersion=%s ' "$1" "$version" ;;
    helm.sh/helm/*) printf -- '-X %s/internal/version.version=%s ' "$1" "$version" ;;
  esac
}

# Prints the stamps of all programs of one go.mod. The linker ignores variables that a program does not have.
all_stamps() {
  local line name needed module package versioned version
  for line in "${programs[@]}"; do
    read -r name needed module package versioned <<<"$line"
    [ "$module" = "$1" ] || continue
    version=$(go list -m -f '{{.Version}}' "$versioned") || return 1
    stamps "$versioned" "$version"
  done
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

# Prints name and package of each program that is wanted and not there.
wanted_programs() {
  local module
  for module in $(modules); do
    missing_programs "$module"
  done
}

# Prints the folder of each go.mod.
modules() {
  printf '%s\n' "${programs[@]}" | awk '!seen[$3]++ { print $3 }'
}

# Prints name and package of each program of one go.mod that is wanted and not there.
missing_programs() {
  local line name needed module package rest
  for line in "${programs[@]}"; do
    read -r name needed module package rest <<<"$line"
    if [ "$module" = "$1" ] && ! is_asset "$name" && [ ! -x "$built/$name" ] &&
      [[ " ${wanted[*]} " == *" $needed "* ]]; then
      echo "$name $package"
    fi
  done
}

missing_files() {
  local stage crd
  wanted_programs | cut -d' ' -f1
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
  local module wanted
  for module in $(modules); do
    [ -n "$(missing_programs "$module")" ] || continue
    wanted=$(sed -n 's/^go //p' "$here/$module/go.mod")
    command -v go >/dev/null || fail "Go is missing: install Go $wanted or newer, https://go.dev/dl"
    # In a folder of the module, an older Go first looks for the toolchain that go.mod asks for.
    (cd "$here/$module" && go version >/dev/null 2>"$built/.go.log") ||
      fail "Go $wanted or newer is needed: $(tail -n 1 "$built/.go.log")"
  done
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
  local log=$1
  tail -n 20 "$log" >&2
  if grep -q 'no space left on device' "$log"; then
    fail "the disk is full: a build needs $needed_megabytes MB, shared between $built, $(go env GOCACHE) and $(go env GOMODCACHE)"
  fi
  if grep -qE 'dial tcp|no such host|i/o timeout|connection refused|TLS handshake|x509:|proxyconnect|unexpected EOF|403 Forbidden|disabled by GOPROXY' "$log"; then
    fail "a Go module cannot be downloaded: can this machine reach $(go env GOPROXY)? GOPROXY names another proxy"
  fi
  if grep -q 'signal: killed' "$log"; then
    fail "a compiler was killed, most likely for lack of memory: GOFLAGS=-p=1 runs one at a time"
  fi
  fail "building failed; the whole output is in $log"
}

say() { echo "control-plane: $*" >&2; }

fail() {
  say "error: $*"
  exit 1
}

clear_up() {
  if [ -n "$child" ]; then
    kill -TERM -- "-$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  [ -z "${built:-}" ] || rm -rf "$built/.new.$$"
}

child=
trap clear_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

main "$@"

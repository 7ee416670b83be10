# shellcheck shell=bash
# What a reader has, and a test has not: pods that run, and a checkout to build in.
set -euo pipefail
exec 2>&1

# Asks the test for something, and waits for its answer.
ask() {
  local answer
  exec 9<>"/dev/tcp/127.0.0.1/$TEST_PORT"
  printf '%s\n' "$*" >&9
  IFS= read -r answer <&9
  exec 9>&-
  case $answer in
    ok*) printf '%s' "${answer#ok }" ;;
    *) printf '%s\n' "$answer" >&2 && return 1 ;;
  esac
}

# Runs the real one, and waits until the pods are as it says.
and_pods() {
  local code=0
  command "$@" || code=$?
  ask sync >/dev/null || code=$?
  return $code
}

kubectl() {
  case ${1:-} in
    # The last time-out counts. The page has one for a machine that is not busy.
    wait) command kubectl "$@" --timeout=5m ;;
    # Those that change nothing.
    get | describe | events | logs | version | kustomize | pod-reloader) command kubectl "$@" ;;
    *) and_pods kubectl "$@" ;;
  esac
}

# Not empty in commands that a page does not show.
prepares=''

# The first argument that is no flag.
release() {
  local argument
  for argument; do
    [[ $argument == -* ]] || { echo "$argument" && return; }
  done
}

helm() {
  case ${1:-} in
    install | upgrade)
      # To check the objects, Helm reads the schemas of all kinds, which takes it and the apiserver a second of processor
      # time. They are checked where a page shows `helm install`.
      local unchecked=$prepares
      [ "$1" = install ] || unchecked=yes
      and_pods helm "$@" ${unchecked:+--disable-openapi-validation} \
        --values "$(ask values "$(release "${@:2}")")"
      ;;
    test)
      ask test >/dev/null &
      command helm "$@"
      wait $!
      ;;
    *) and_pods helm "$@" ;;
  esac
}

# Whether there is such a target: to make it takes minutes.
make() {
  command make --no-print-directory -n -C "$REPOSITORY" "$@" >/dev/null
}

# Whether there are such packages and programs.
cargo() {
  local previous='' argument
  for argument; do
    case $previous in
      --path) [ -f "$REPOSITORY/$argument/Cargo.toml" ] ;;
      -p) grep -q "^name = \"$argument\"$" "$REPOSITORY"/{*,crates/*}/Cargo.toml ;;
      --bin) compgen -G "$REPOSITORY/*/src/bin/$argument*" >/dev/null ;;
      --) return ;;
    esac
    previous=$argument
  done
}

# Part of scripts/setup: builds load generators that are not in distributions, in the versions that the
# tests expect. This takes minutes. Generators on PATH are not built.

ensure_generators() {
  PATH=$PWD/build/bin:$PATH # as in scripts/test
  have oha || build oha cargo https://rustup.rs \
    cargo install --quiet --locked --root build --version 1.16.0 oha
  have k6 || build k6 go https://go.dev/dl \
    env GOBIN="$PWD/build/bin" go install go.k6.io/k6@v0.52.0
}

build() { # PROGRAM COMPILER URL COMMAND…: URL is the download page of the compiler
  program=$1 compiler=$2 place=$3
  shift 3
  if ! have "$compiler"; then
    say "$program is built with $compiler, which is not on this machine: $place"
    say "Install it, or put your own $program on PATH. Then run the same command again."
    exit 1
  fi
  say "Building $program: $*"
  mkdir -p build/bin
  "$@" 9<&- || { say "$program could not be built; see above."; exit 1; }
}

# Part of scripts/setup: load generators that no distribution has, built from source in versions that
# their tests hold for, which takes minutes. One that is on PATH already is used as it is.

ensure_generators() {
  PATH=$PWD/build/bin:$PATH # where scripts/test looks for them, too
  have oha || build oha cargo https://rustup.rs \
    cargo install --quiet --locked --root build --version 1.16.0 oha
  have k6 || build k6 go https://go.dev/dl \
    env GOBIN="$PWD/build/bin" go install go.k6.io/k6@v0.52.0
}

build() { # program, its compiler, where that is, command
  program=$1 compiler=$2 place=$3
  shift 3
  if ! have "$compiler"; then
    say "$program is built with $compiler, which is not on this machine: $place"
    say "Or put a $program of your own on PATH. Then run the same command again."
    exit 1
  fi
  say "Building $program: $*"
  mkdir -p build/bin
  "$@" 9<&- || { say "$program could not be built; see above."; exit 1; }
}

# Part of scripts/setup: creates .venv with exactly the versions in the lock file. A stamp file with the
# digests of all inputs is written last, so it is missing if a set-up was killed. The next set-up then
# starts again.

venv_stamp=.venv/autotune-setup

find_python() { # prints the first Python >= 3.11 with venv
  for python in python3 "$root/usr/bin/python3" python3.14 python3.13 python3.12 python3.11; do
    if have "$python" && "$python" -c \
      'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
}

digest() { sha256sum | cut -c1-32; }

packages_key() { # PYTHON: prints a digest; if it changes, .venv is created again
  { pwd; "$1" -c 'import sys; print(sys.version_info[:2])'; cat requirements*.lock; } | digest
}

project_key() { digest <pyproject.toml; } # if this digest changes, only autotune itself is installed again

pip_install() {
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    --root-user-action ignore "$@" 9<&-
}

ensure_venv() {
  if [ -L .venv ]; then
    say ".venv is a link to $(readlink .venv): used as it is."
    return
  fi
  made_kind= made_packages= made_project=
  if [ -r "$venv_stamp" ] && .venv/bin/python -c '' 2>/dev/null; then
    read -r made_kind made_packages made_project <"$venv_stamp" || :
    if [ "$made_packages" != "$(packages_key .venv/bin/python)" ]; then made_packages=; fi
  fi
  # The lock file for development contains all packages of requirements.lock, in the same versions.
  case $made_kind in dev | "$kind") kind=$made_kind enough=yes ;; *) enough= ;; esac
  if [ -n "$enough" ] && [ -n "$made_packages" ] && [ "$made_project" = "$(project_key)" ]; then
    return
  fi

  rm -f "$venv_stamp"
  if [ -z "$made_packages" ]; then make_venv; fi
  if [ -z "$enough" ] || [ -z "$made_packages" ]; then install_locked; fi
  # The build backend is in the lock file too, so the hash of every package is checked.
  pip_install --no-deps --no-build-isolation --editable .
  echo "$kind $(packages_key .venv/bin/python) $(project_key)" >"$venv_stamp.new"
  mv "$venv_stamp.new" "$venv_stamp"
}

make_venv() {
  python=$(find_python)
  if [ -z "$python" ]; then
    say "No Python >= 3.11 with venv was found. On Debian and Ubuntu:"
    say "  apt-get install python3 python3-venv"
    exit 1
  fi
  say "Making .venv with $("$python" --version)."
  "$python" -m venv --clear .venv
}

install_locked() {
  lock=requirements.lock
  if [ "$kind" = dev ]; then lock=requirements-dev.lock; fi
  say "Installing Python packages from $lock, hashes checked."
  pip_install --require-hashes --requirement "$lock"
}

# Part of scripts/setup: .venv, exactly as the lock file says. A stamp, written last, holds what
# .venv was made from; a set-up that was killed half-way leaves none and is done again.

venv_stamp=.venv/autotune-setup

find_python() { # prints the first Python >= 3.11 that can make environments
  for python in python3 "$root/usr/bin/python3" python3.14 python3.13 python3.12 python3.11; do
    if have "$python" && "$python" -c \
      'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
}

digest() { sha256sum | cut -c1-32; }

packages_key() { # of everything that is installed: a change makes .venv anew
  { pwd; "$1" -c 'import sys; print(sys.version_info[:2])'; cat requirements*.lock; } | digest
}

project_key() { digest <pyproject.toml; } # a change only installs autotune itself again

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
  # The lock to develop holds all of the lock to run, in the same versions.
  case $made_kind in dev | "$kind") kind=$made_kind enough=yes ;; *) enough= ;; esac
  if [ -n "$enough" ] && [ -n "$made_packages" ] && [ "$made_project" = "$(project_key)" ]; then
    return
  fi

  rm -f "$venv_stamp"
  if [ -z "$made_packages" ]; then make_venv; fi
  if [ -z "$enough" ] || [ -z "$made_packages" ]; then install_locked; fi
  # Its build back end is in the lock file too: nothing is fetched unchecked.
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

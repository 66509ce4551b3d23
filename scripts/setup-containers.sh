# Part of scripts/setup: what the tests of Compose projects need (about 100 MB), which nothing else does.

missing_for_containers() {
  have podman || echo podman
  have runc || echo runc # the other runtime of containers refuses machines with both kinds of cgroups
  have newuidmap || echo uidmap # for accounts without privileges
  have mmdebstrap || echo mmdebstrap # makes the image, of the distribution's own packages
}

ensure_containers() {
  ensure_packages missing_for_containers
  PATH=$PWD/build/compose/bin:$PATH # where scripts/test looks for it, too
  have podman-compose || {
    /usr/bin/python3 -m venv build/compose && build/compose/bin/pip install --quiet podman-compose==1.6.0
  }
}

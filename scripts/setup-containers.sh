# Part of scripts/setup: packages for tests with Compose projects (about 100 MB).

missing_for_containers() {
  have podman || echo podman
  have runc || echo runc # crun refuses hosts that use cgroups v1 and v2 together
  have newuidmap || echo uidmap # for rootless containers
  have mmdebstrap || echo mmdebstrap # builds the image from the distribution's packages
}

ensure_containers() {
  ensure_packages missing_for_containers
  PATH=$PWD/build/compose/bin:$PATH # as in scripts/test
  have podman-compose || {
    /usr/bin/python3 -m venv build/compose && build/compose/bin/pip install --quiet podman-compose==1.6.0
  }
}

# Part of scripts/setup: tools that create and enter the Debian 13 tree of scripts/test-debian13.

missing_for_debian13() {
  have mmdebstrap || echo mmdebstrap # installs a distribution into a directory
  have unshare || echo util-linux # creates namespaces for the tree
  have git || echo git # lists the files of the checkout
}

ensure_debian13() { ensure_packages missing_for_debian13; }

# Part of scripts/setup: packages of the distribution. The script checks whether their programs and
# modules exist, so that it also accepts distributions in which the packages have other names.

fpm_has() { # [MODULE]: true if PHP-FPM is installed, with this module if one is given
  for fpm in php-fpm "$root"/usr/sbin/php-fpm[0-9]*; do
    if have "$fpm" && { [ $# -eq 0 ] || "$fpm" -m 2>/dev/null | grep -qix "$1"; }; then return; fi
  done
  return 1
}

missing_packages() {
  have nginx || echo nginx
  fpm_has || echo php-fpm
  fpm_has memcached || echo php-memcached
  fpm_has redis || echo php-redis
  have memcached || echo memcached
  have redis-server || echo redis-server
  have redis-cli || echo redis-tools
  have httperf || echo httperf
  have curl || echo curl
  have ss || echo iproute2
  [ -n "$(find_python)" ] || echo python3 python3-venv
  if [ "$kind" = dev ]; then missing_for_tests; fi
}

apache_has_php() {
  for module in "$root"/usr/lib/apache2/modules/libphp*.so; do
    if [ -e "$module" ]; then return; fi
  done
  return 1
}

# Packages for lab hosts are useful only to root. They are optional on unsupported distributions:
# without them, the lab tests are skipped, with a message.
missing_for_tests() {
  have make || echo make # runs the tests
  have git || echo git # applies exported patches
  have patch || echo patch # likewise
  apache_has_php || echo libapache2-mod-php
  fpm_has mysqli || echo php-mysql # queries a database
  have chromium || echo chromium # opens the HTML report
  have wrk || echo wrk # closed-loop load
  have memcaslap || echo libmemcached-tools # load for caches
  have openssl || echo openssl # creates certificates for tests with TLS
  if [ "$(id -u)" -ne 0 ] || ! supported; then return; fi
  have systemd-nspawn || echo systemd-container
  have sshd || echo openssh-server
  have ssh-keygen || echo openssh-client
  have fish || echo fish # a login shell that is not POSIX
  have tcsh || echo tcsh # likewise
  have zsh || echo zsh # a login shell with a different glob syntax
  have gunicorn || echo gunicorn # runs an application on a lab host
  have uwsgi || echo uwsgi uwsgi-plugin-python3 # likewise
  have puma || echo puma # likewise
  have node || echo nodejs # likewise
  have sudo || echo sudo # for tests that log in to hosts without root
}

# The tests start every service. Each service declares its programs and packages. Modules such as
# Apache's PHP module are checked separately, because they are not programs.
missing_for_services() { .venv/bin/python scripts/missing_packages.py; }

# Tested on Debian 12 and 13. Ubuntu 24.04 has the same packages and installs them in the same way.
supported() {
  case "$(. "$os_release" 2>/dev/null && echo "${ID-} ${VERSION_ID-}")" in
    "debian 12" | "debian 13" | "ubuntu 24.04") ;;
    *) return 1 ;;
  esac
}

debian_like() {
  case " $(. "$os_release" 2>/dev/null && echo "${ID-} ${ID_LIKE-}") " in
    *" debian "* | *" ubuntu "*) have apt-get ;;
    *) return 1 ;;
  esac
}

may_ask_for_password() { [ -t 0 ] && [ -z "${CI-}" ]; }

as_root() { # prints the prefix that runs a command as root: "" or "sudo"
  if [ "$(id -u)" -eq 0 ]; then return; fi
  have sudo || return 1
  sudo -n true 2>/dev/null || may_ask_for_password || return 1
  echo sudo
}

stop_with_list() { # REASON PACKAGES
  say "autotune needs programs that are not on this machine, and $1." \
      "Nothing was installed."
  say "Missing: ${2:-the rest of an interrupted installation}"
  if debian_like; then
    say "Ask an administrator to run this command in $PWD:"
    say "  scripts/install-packages $2"
    say "It neither starts nor enables services. If services may start, this command is enough:"
    say "  apt-get install --no-install-recommends $2"
  else
    say "These are Debian package names. Install the equivalents (nginx, PHP-FPM with the"
    say "memcached and redis extensions, memcached, Redis, httperf, Python >= 3.11 with venv)."
  fi
  say "Then run the same command again."
  exit 1
}

ensure_packages() { # FUNCTION: it prints the missing packages
  needed=$("$1" | tr '\n' ' ')
  needed=${needed% }
  if [ -z "$needed" ] && [ ! -e "$root/var/lib/autotune-setup" ]; then return; fi

  supported || stop_with_list "this is not Debian 12, Debian 13 or Ubuntu 24.04" "$needed"
  sudo=$(as_root) || stop_with_list "you are neither root nor allowed to use sudo here" "$needed"

  say "Going to install from the distribution${sudo:+, with sudo}:" \
      "${needed:-the rest of an interrupted installation}"
  say "(with their dependencies; their services are neither started nor enabled)"
  # Each word is a package name.
  # shellcheck disable=SC2086
  $sudo scripts/install-packages $needed 9<&- || {
    say "The packages could not be installed; see above."
    say "Fix the problem, then run the same command again."
    exit 1
  }
  needed=$("$1" | tr '\n' ' ')
  if [ -n "$needed" ]; then
    say "Still missing after the installation: $needed"
    say "(Is a program with the same name earlier on PATH, or is another PHP version the default?)"
    exit 1
  fi
}

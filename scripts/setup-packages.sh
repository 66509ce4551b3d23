# Part of scripts/setup: the distribution packages. They are looked for by what they provide, not
# by name, so that a machine of any distribution that has everything can go on.

fpm_has() { # a PHP-FPM, or one that has a given module (so without FPM, no module counts)
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

# What lab hosts are made of serves root alone, and without it the lab's
# tests say that they did not run: it is no reason to stop on a machine that cannot have it.
missing_for_tests() {
  have make || echo make # what runs them
  have git || echo git # applies patches that were exported
  apache_has_php || echo libapache2-mod-php
  fpm_has mysqli || echo php-mysql # what asks a database
  have chromium || echo chromium # looks at the HTML report
  have wrk || echo wrk # loads a stack in closed loops
  have memcaslap || echo libmemcached-tools # loads caches by themselves
  have openssl || echo openssl # makes the certificates of sites that are loaded over TLS
  if [ "$(id -u)" -ne 0 ] || ! supported; then return; fi
  have systemd-nspawn || echo systemd-container
  have sshd || echo openssh-server
  have ssh-keygen || echo openssh-client
  have fish || echo fish # a login shell that is not POSIX
  have tcsh || echo tcsh # likewise
  have zsh || echo zsh # a login shell with globs of its own
  have gunicorn || echo gunicorn # runs an application on a lab host
  have uwsgi || echo uwsgi uwsgi-plugin-python3 # likewise
  have puma || echo puma # likewise
  have node || echo nodejs # likewise
  have sudo || echo sudo # hosts are also reached by an account that is not root
}

# The tests start every service. Each declares its programs and packages; a module of one is no
# program, see apache_has_php.
missing_for_services() { .venv/bin/python scripts/missing_packages.py; }

# Tried on Debian 12 and 13; Ubuntu 24.04 has the same packages and the same way to install them.
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

as_root() { # prints how a command gets to be run as root: "" or "sudo"
  if [ "$(id -u)" -eq 0 ]; then return; fi
  have sudo || return 1
  sudo -n true 2>/dev/null || may_ask_for_password || return 1
  echo sudo
}

stop_with_list() { # reason, packages
  say "autotune needs programs that are not on this machine, and $1." \
      "Nothing was installed."
  say "Missing: ${2:-the rest of an installation that was cut off}"
  if debian_like; then
    say "Have an administrator run, in $PWD:"
    say "  scripts/install-packages $2"
    say "which starts and enables no service, or, if services may start:"
    say "  apt-get install --no-install-recommends $2"
  else
    say "These are the names Debian gives them; install the like (nginx, PHP-FPM with the"
    say "memcached and redis extensions, memcached, Redis, httperf, Python >= 3.11 with venv)."
  fi
  say "Then run the same command again."
  exit 1
}

ensure_packages() { # what lists those that are missing
  needed=$("$1" | tr '\n' ' ')
  needed=${needed% }
  if [ -z "$needed" ] && [ ! -e "$root/var/lib/autotune-setup" ]; then return; fi

  supported || stop_with_list "this is not Debian 12, Debian 13 or Ubuntu 24.04" "$needed"
  sudo=$(as_root) || stop_with_list "you are neither root nor allowed to use sudo here" "$needed"

  say "Going to install from the distribution${sudo:+, with sudo}:" \
      "${needed:-what was cut off before}"
  say "(with what they depend on; none of their services is started or enabled)"
  # The names are split into words on purpose.
  # shellcheck disable=SC2086
  $sudo scripts/install-packages $needed 9<&- || {
    say "The packages could not be installed; see above."
    say "Run the same command again once it is solved."
    exit 1
  }
  needed=$("$1" | tr '\n' ' ')
  if [ -n "$needed" ]; then
    say "Still missing after the installation: $needed"
    say "(is a program of the same name earlier on PATH, or another PHP version the default?)"
    exit 1
  fi
}

#!/bin/sh
# Installs the MariaDB server that tests and examples start, unless there is one.
set -eu

PACKAGE=mariadb-server-core
PATH="$PATH:/usr/sbin:/usr/local/sbin"

if command -v mariadbd >/dev/null; then
  exit 0
fi

fail() {
  echo "error: the MariaDB server (mariadbd) is needed, and $1" >&2
  echo "hint: $2" >&2
  exit 1
}

command -v apt-get >/dev/null ||
  fail "only apt-get is known here to install it with" "install it as this system does it, then try again"

if [ "$(id -u)" -eq 0 ]; then
  as_root=
elif command -v sudo >/dev/null; then
  as_root=sudo
else
  fail "only root can install it" "as root: apt-get install --no-install-recommends $PACKAGE"
fi

install() {
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install --quiet=2 --yes --no-install-recommends "$PACKAGE"
}

echo "Installing the MariaDB server ($PACKAGE, about 8 MB, once)"
# The list of packages may be missing or old: then the first attempt fails, and the second says why.
if ! install >/dev/null 2>&1; then
  { $as_root apt-get update --quiet=2 >/dev/null && install >/dev/null; } ||
    fail "it could not be installed" "apt-get says above why"
fi

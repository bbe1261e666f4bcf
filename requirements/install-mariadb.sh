#!/bin/sh
# Install the MariaDB server that tests and `headgate up --database` start, unless it is installed.
set -eu

PACKAGE=mariadb-server-core
PATH="$PATH:/usr/sbin:/usr/local/sbin"

if command -v mariadbd >/dev/null; then
  exit 0
fi

fail() {
  echo "error: the MariaDB server (mariadbd) is required, and $1" >&2
  echo "hint: $2" >&2
  exit 1
}

command -v apt-get >/dev/null ||
  fail "apt-get is not available to install it" "install it with the package manager of this system, then try again"

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
# The package list may be missing or outdated: then the first attempt fails, and the second shows why.
if ! install >/dev/null 2>&1; then
  { $as_root apt-get update --quiet=2 >/dev/null && install >/dev/null; } ||
    fail "it could not be installed" "see the output of apt-get above"
fi

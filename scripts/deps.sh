#!/usr/bin/env bash
# Installs what the tests and the demo need and this machine lacks: MariaDB's
# server and client programs, and a C compiler for Go's race detector.
#
# What needs which package (names of Debian 12):
#   mariadb-server-core  mariadbd, mariadb-install-db, resolveip: the servers
#   mariadb-client       mariadb-dump, mariadb-binlog, mariadb-admin, and by its
#                        dependency mariadb-client-core mariadb, my_print_defaults:
#                        copies between servers, restarts, tests
#   gcc, libc6-dev       "go test -race" is built with cgo; repld itself is not
#   ca-certificates      Go's first download of the modules
# Everything else that scripts and tests call (sh, env, cp, chown, grep, sed,
# tail, setsid, nsenter) is in packages that Debian marks essential.
#
# It never starts, stops or changes a MariaDB of the system: only programs are
# installed (mariadb-server-core has no service), and the tests start servers of
# their own in temporary folders.
set -euo pipefail

# Users other than root often lack sbin in their path.
PATH=$PATH:/usr/sbin:/sbin

has() { command -v "$1" >/dev/null 2>&1; }

packages=()
want() { # want PACKAGE PROGRAM...: the package, if one of its programs is missing
	local package=$1 program
	shift
	for program in "$@"; do
		if ! has "$program"; then
			packages+=("$package")
			return 0
		fi
	done
}

want mariadb-server-core mariadbd mariadb-install-db
want mariadb-client mariadb mariadb-admin mariadb-dump mariadb-binlog
want gcc gcc
# The compiler is of no use without the C library's headers.
if [ ! -e /usr/include/stdio.h ]; then
	packages+=(libc6-dev)
fi

# Where Go looks for authorities.
authorities() {
	local file
	for file in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
		/etc/ssl/ca-bundle.pem /etc/pki/tls/cacert.pem /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem /etc/ssl/cert.pem; do
		if [ -n "$file" ] && [ -s "$file" ]; then
			return 0
		fi
	done
	return 1
}
if ! authorities; then
	packages+=(ca-certificates)
fi

if [ ${#packages[@]} -eq 0 ]; then
	exit 0
fi

echo "deps: missing: ${packages[*]}" >&2
install=(apt-get install -y --no-install-recommends "${packages[@]}")
if ! has apt-get; then
	echo "deps: this is no Debian-like system; install what corresponds to these packages and run again" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "deps: not root; run these and then the same command again:" >&2
	echo "    sudo apt-get update" >&2
	echo "    sudo ${install[*]}" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
"${install[@]}"

#!/usr/bin/env bash
# Makes the programs that judge our artefacts available to the tests: dockerd, docker compose,
# quadlet, systemd-analyze, nginx, chromium, and a small Python root file system for container tests.
# Debian 12 packages are installed; Debian 13 ones are only unpacked under .test-tools/root.
# Writes .test-tools/env, to be sourced before pytest. Does nothing when all of it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.test-tools
version=5

give_up() {
  echo "install_test_tools: $1" >&2
  # in CI the tests need the tools; elsewhere they skip what is missing and say so
  if [ -n "${CI:-}" ]; then exit 4; fi
  exit 0
}

complete() {
  [ "$(cat "$tools/version" 2>/dev/null)" = "$version" ] && [ -s "$tools/env" ] &&
    command -v dockerd >/dev/null && command -v runc >/dev/null && command -v docker >/dev/null &&
    command -v systemd-analyze >/dev/null && command -v chromium >/dev/null
}
PATH=$PATH:/usr/sbin:/sbin
if complete; then exit 0; fi
command -v apt-get >/dev/null 2>&1 || give_up "no apt-get: the tests of real tools need Debian 12"
[ "$(id -u)" = 0 ] || give_up "not root: cannot install docker.io"

export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends docker.io systemd chromium >/dev/null

rm -rf "$tools"
mkdir -p "$tools/apt/lists/partial" "$tools/apt/cache/archives/partial" \
  "$tools/debs" "$tools/root" "$tools/mini-debs" "$tools/mini"

# the mirror of this machine, one release further
mirror=$(sed -n 's/^URIs: //p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -1)
if [ -z "$mirror" ]; then
  mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list | head -1)
fi
[ -n "$mirror" ] || give_up "no Debian mirror in /etc/apt"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" \
  >"$tools/apt/sources.list"
newer=(-o "Dir::Etc::sourcelist=$tools/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$tools/apt/lists" -o "Dir::Cache=$tools/apt/cache"
  -o APT::Sandbox::User=root)
apt-get "${newer[@]}" -qq update
(cd "$tools/debs" && apt-get "${newer[@]}" -qq download docker-compose podman \
  libc6 libgpgme11t64 libassuan9 libgpg-error0 libseccomp2 libsubid5 libsqlite3-0)
for deb in "$tools"/debs/*.deb; do dpkg-deb -x "$deb" "$tools/root"; done

# nginx 1.28 or newer, whose open-source build resolves upstream names anew, with its libraries: of
# the Debian release after the newer one. That one still moves, so its tests skip where it fails.
newest_nginx() {
  local needed newest=("${newer[@]}" -o "Dir::Etc::sourcelist=$tools/apt/next.list"
    -o "Dir::State::lists=$tools/apt/next")
  mkdir -p "$tools/apt/next/partial" "$tools/nginx-debs" "$tools/nginx" &&
    sed 's/ trixie main$/ forky main/' "$tools/apt/sources.list" >"$tools/apt/next.list" &&
    apt-get "${newest[@]}" -qq update &&
    mapfile -t needed < <(apt-cache "${newest[@]}" depends nginx |
      sed -nE 's/^ +Depends: (z?lib.*)/\1/p') &&
    mapfile -t needed < <(apt-cache "${newest[@]}" depends --recurse --no-recommends \
      --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "${needed[@]}" |
      grep -E '^z?lib[^:]*$' | sort -u) &&
    (cd "$tools/nginx-debs" && apt-get "${newest[@]}" -qq download nginx "${needed[@]}") &&
    (for deb in "$tools"/nginx-debs/*.deb; do dpkg-deb -x "$deb" "$tools/nginx" || exit 1; done) &&
    "$tools/nginx/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" \
      --library-path "$tools/nginx/usr/lib/x86_64-linux-gnu" "$tools/nginx/usr/sbin/nginx" -v
}
if ! newest_nginx; then
  echo "install_test_tools: no nginx of Debian forky here: the tests of the router skip" >&2
  rm -rf "$tools/nginx" "$tools/nginx-debs"
  touch "$tools/no-nginx"
fi

# a root file system with Python 3.11 for images that are made without a registry
(cd "$tools/mini-debs" && apt-get -o APT::Sandbox::User=root -qq download python3.11-minimal \
  libpython3.11-minimal libpython3.11-stdlib libc6 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 \
  liblzma5 libsqlite3-0 libuuid1 libcrypt1 libgcc-s1 busybox-static)
mini=$tools/mini
for deb in "$tools"/mini-debs/*.deb; do dpkg-deb -x "$deb" "$mini"; done
for dir in bin lib lib64 sbin; do
  if [ -d "$mini/$dir" ] && [ ! -L "$mini/$dir" ]; then
    mkdir -p "$mini/usr/$dir"
    cp -a "$mini/$dir/." "$mini/usr/$dir/"
    rm -rf "${mini:?}/$dir"
  fi
  ln -sfn "usr/$dir" "$mini/$dir"
done
rm -rf "$mini/usr/share/doc" "$mini/usr/share/man" "$mini/usr/share/locale"
mkdir -p "$mini"/{usr/sbin,tmp,etc,proc,sys,dev,root}
chmod 1777 "$mini/tmp"
ln -sf python3.11 "$mini/usr/bin/python3"
for applet in sh ls cat echo sleep env ps id; do ln -sf busybox "$mini/usr/bin/$applet"; done
echo 'root:x:0:0::/root:/bin/sh' >"$mini/etc/passwd"
tar -C "$mini" -cf "$tools/mini.tar" .
rm -rf "$mini" "$tools/mini-debs" "$tools/nginx-debs" "$tools/debs" "$tools/apt"

{
  printf 'export QWENDEPLOY_TEST_TOOLS=%q\n' "$tools"
  # shellcheck disable=SC2016
  echo 'export PATH=$PATH:/usr/sbin:/sbin'
} >"$tools/env"
echo "$version" >"$tools/version"
complete || give_up "something is still missing after the installation"

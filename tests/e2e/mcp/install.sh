#!/usr/bin/env bash
# install.sh DIR: installs the locked npm packages of DIR/package.json below DIR, unless they are
# there already.
set -euo pipefail
cd "$1"
command -v npm >/dev/null || {
  echo "npm is missing; scripts/dependencies test installs it (scripts/test runs that first)" >&2
  exit 1
}
if cmp -s package-lock.json node_modules/.installed-lock.json; then exit 0; fi
# Not `npm ci`: it refuses a lock file without an entry for an optional package that the registry
# does not have. With --no-save the locked versions are installed and nothing is rewritten.
npm install --no-save
cp package-lock.json node_modules/.installed-lock.json

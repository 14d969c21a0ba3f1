#!/bin/sh
# run.sh PROGRAM SOURCE BUILD WORK: builds the playground and compares it with the program, then tests its page in Chromium.
# Exits with 77 and a sentence where that cannot be done here.
set -eu
program=$1
source=$2
build=$3
work=$4
here=$(cd "$(dirname "$0")" && pwd)

skip() {
  echo "skipped: $1"
  exit 77
}

command -v emcmake >/dev/null || skip "emscripten is not there"
node=$(command -v node || command -v nodejs) || skip "Node.js is not there"
"$node" -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)' || skip "Node.js is older than 18"
[ -e "$build/build.ninja" ] || emcmake cmake -S "$source" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBATON_UNITY=ON
cmake --build "$build" --target playground --parallel 2

export BATON_PROGRAM="$program" BATON_PLANNER="$build/playground/planner.js" BATON_PAGE="$build/playground.html"
"$node" --test "$here/equality_test.mjs"

command -v npm >/dev/null || skip "npm is not there, so the page was not opened"
BATON_CHROMIUM=${BATON_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
  skip "Chromium is not there (BATON_CHROMIUM may name it), so the page was not opened"
export BATON_CHROMIUM
mkdir -p "$work"
cp "$here/../web/package.json" "$here/../web/package-lock.json" "$here/../web/.npmrc" "$work"
if ! cmp -s "$work/package-lock.json" "$work/installed"; then
  (cd "$work" && npm ci --ignore-scripts --loglevel=error --fetch-retries=1 --fetch-retry-mintimeout=1000) ||
    skip "npm could not install playwright-core, so the page was not opened"
  cp "$work/package-lock.json" "$work/installed"
fi
BATON_WORK=$work exec "$node" --test "$here/page_test.mjs"

#!/bin/sh
# run.sh MAKE_SAMPLE_REPORT MAKE_SAMPLE_PAGE PAGE_WITHOUT_CHARTS WORK: makes the sample page and tests it in Chromium.
# Exits with 77 and a sentence where that cannot be done here.
set -eu
report=$1
program=$2
without=$3
work=$4
here=$(cd "$(dirname "$0")" && pwd)

skip() {
  echo "skipped: $1"
  exit 77
}

node=$(command -v node || command -v nodejs) || skip "Node.js is not there"
command -v npm >/dev/null || skip "npm is not there"
"$node" -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)' || skip "Node.js is older than 18"
BATON_CHROMIUM=${BATON_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)} ||
  skip "Chromium is not there (BATON_CHROMIUM may name it)"
export BATON_CHROMIUM

mkdir -p "$work"
cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$work"
if ! cmp -s "$work/package-lock.json" "$work/installed"; then
  (cd "$work" && npm ci --ignore-scripts --loglevel=error --fetch-retries=1 --fetch-retry-mintimeout=1000) ||
    skip "npm could not install playwright-core"
  cp "$work/package-lock.json" "$work/installed"
fi

"$node" "$here/sample_results.mjs" > "$work/results.json"
"$report" "$work/results.json" "$work/report.json"
"$program" "$work/report.json" "$work/page.html"
"$program" "$work/report.json" "$work/page_without_charts.html" "$without"
BATON_WORK=$work exec "$node" --test "$here/page_test.mjs"

#!/usr/bin/env bash
# Tests the launcher on a copy next to a tiny project with the names the launcher relies on.
# Usage: launcher_test.sh SOURCE_DIR
#
# The tiny project leaves one line in build/compiles.txt for each time main.cpp is compiled, and its
# program prints its greeting, its folder and its arguments and exits with the first one.

set -uo pipefail

source_dir=$(cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
tree="$scratch/a tree"
failures=0

# Nothing of the caller's build may leak in.
unset CXXFLAGS LDFLAGS BATON_BLESS CDPATH
export BATON_NO_INSTALL=1 BATON_BUILD_JOBS=2

check() { # WHAT COMMAND... : the command must succeed
  local what=$1
  shift
  if "$@"; then
    printf 'ok      %s\n' "$what"
  else
    printf 'FAILED  %s   (%s)\n' "$what" "$*"
    [[ -s $scratch/out ]] && sed 's/^/    stdout: /' "$scratch/out"
    [[ -s $scratch/err ]] && sed 's/^/    stderr: /' "$scratch/err"
    failures=$((failures + 1))
  fi
}

call() { # ARGS... : runs the launcher, leaving $scratch/out, $scratch/err and $status
  "$tree/baton" "$@" >"$scratch/out" 2>"$scratch/err"
  status=$?
}

equal() { [[ $1 == "$2" ]]; }
contains() { [[ $(<"$1") == *"$2"* ]]; }
compiles() { wc -l 2>/dev/null <"$tree/build/compiles.txt" || printf 0; }
stdout_is() { equal "$(<"$scratch/out")" "$1"; }
silent() { [[ ! -s $scratch/err ]]; }

greet() { # GREETING : writes main.cpp
  cat >"$tree/apps/baton/main.cpp" <<CPP
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
int main(int argc, char** argv) {
  char folder[4096];
  std::printf("$1 in %s:", getcwd(folder, sizeof folder));
  for (int i = 1; i < argc; ++i) std::printf(" <%s>", argv[i]);
  if (argc > 2 && argv[2][0] == '-') std::putchar(std::getchar());
  if (argc > 2 && argv[2][0] == '?') std::printf(" called as %s", std::getenv("BATON_CALLED_AS"));
  if (argc > 2 && argv[1][0] == 'p') return std::printf(" with %s\\n", std::getenv("BATON_PLAYGROUND_PAGE")), argv[2][0] == 'x' ? 2 : 0;
  std::puts("");
  return argc > 1 ? std::atoi(argv[1]) : 0;
}
CPP
}

make_tree() {
  mkdir -p "$tree/apps/baton" "$tree/src"
  cp -- "$source_dir/baton" "$source_dir/CMakePresets.json" "$tree"
  cat >"$tree/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(tiny CXX)
option(BATON_TESTS "Build the tests" ON)
add_subdirectory(apps/baton)
if(BATON_TESTS)
  enable_testing()
  add_custom_target(test_build ALL COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/tests-built)
  add_test(NAME passes COMMAND ${CMAKE_COMMAND} -E echo passing)
  set_tests_properties(passes PROPERTIES LABELS slow)
  add_test(NAME fails COMMAND ${CMAKE_COMMAND} -E false)
  add_test(NAME docs.Layers.AreDrawn COMMAND sh -c "echo bless=$BATON_BLESS > layers.txt")
  add_test(NAME golden.plan COMMAND sh -c "echo bless=$BATON_BLESS > golden.txt")
endif()
CMAKE
  cat >"$tree/apps/baton/CMakeLists.txt" <<'CMAKE'
file(GLOB extra ${CMAKE_SOURCE_DIR}/src/*.cpp)
add_executable(baton_app main.cpp ${extra})
set_target_properties(baton_app PROPERTIES OUTPUT_NAME baton)
set_source_files_properties(main.cpp PROPERTIES OBJECT_DEPENDS ${CMAKE_BINARY_DIR}/compiled)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/compiled DEPENDS main.cpp
  COMMAND sh -c "echo main.cpp >> ../compiles.txt && echo > compiled; exec sleep \${SLOW:-0}" VERBATIM
  WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
CMAKE
  greet hello
}

first_call_builds_then_nothing_does() {
  local start elapsed stamp
  call 7 'two words' '' '*'
  check 'the first call builds and passes its arguments on' \
    stdout_is "hello in $PWD: <7> <two words> <> <*>"
  check 'the exit code is the program'\''s' equal "$status" 7
  check 'progress goes to stderr' contains "$scratch/err" 'baton: building ['
  check 'the program was compiled once' equal "$(compiles)" 1
  check 'a plain run does not configure tests' test ! -e "$tree/build/release/CTestTestfile.cmake"

  (cd "$tree" && ./baton 0 '?') >"$scratch/out" 2>"$scratch/err"
  check 'the program knows how it was called' contains "$scratch/out" 'called as ./baton'
  stamp=$(stat -c %y "$tree/build/release/.built")
  start=${EPOCHREALTIME/[.,]/}
  for _ in 1 2 3 4 5 6 7 8 9 10; do call 0; done
  elapsed=$(((${EPOCHREALTIME/[.,]/} - start) / 10000))
  check "a later call is quick ($elapsed ms)" test "$elapsed" -lt 100
  check 'a later call is silent' silent
  check 'a later call builds nothing' equal "$(compiles) $(stat -c %y "$tree/build/release/.built")" "1 $stamp"
}

help_names_the_launchers_own_words() {
  local flag
  for flag in --help -h ''; do
    call ${flag:+"$flag"}
    check "help ($flag) names lab first, then test" \
      contains "$scratch/out" $'then runs it:\n\n  ./baton lab  '
    check "help ($flag) continues with the program's" contains "$scratch/out" "hello in $PWD:"
  done
  call 0 lab --help
  check 'the help of a command is the program'\''s alone' stdout_is "hello in $PWD: <0> <lab> <--help>"
  call test --help
  check 'test has help' contains "$scratch/out" '--bless rewrites'
  check 'help builds nothing' equal "$(compiles)" 1
}

the_callers_folder_stays() {
  mkdir -p "$scratch/elsewhere/bin"
  ln -s "$tree/baton" "$scratch/elsewhere/absolute"
  ln -s ../absolute "$scratch/elsewhere/bin/relative"
  cd "$scratch/elsewhere/bin" || exit
  check 'a chain of symlinks works, from another folder' \
    equal "$(./relative 0 2>&1)" "hello in $scratch/elsewhere/bin: <0>"
  cd "$tree" || exit
  check 'a relative call works' equal "$(./baton 0 2>&1)" "hello in $tree: <0>"
  check 'so does bash baton' equal "$(bash baton 0 2>&1)" "hello in $tree: <0>"
  cd "$scratch" || exit
  check 'so does a call over PATH' equal "$(PATH=$tree:$PATH baton 0 2>&1)" "hello in $scratch: <0>"
  check 'none of these built anything' equal "$(compiles)" 1
}

changes_are_built() {
  greet changed
  call 0 - <<<'kept'
  check 'a changed source is built' contains "$scratch/out" "changed in $PWD:"
  check 'the build leaves stdin to the program' contains "$scratch/out" '<->k'
  printf 'struct Loud { Loud() { __builtin_puts("loud"); } } loud;\n' >"$scratch/loud.cpp"
  touch -d '2001-01-01' "$scratch/loud.cpp"
  mv "$scratch/loud.cpp" "$tree/src/"
  call 0
  check 'an added source is built, even an old one' stdout_is $'loud\n'"changed in $PWD: <0>"
  rm "$tree/src/loud.cpp"
  call 0
  check 'a removed source is noticed' stdout_is "changed in $PWD: <0>"
  touch "$tree/src/notes.txt"
  call
  check 'a change that needs no building is silent' silent
  mkdir "$tree/web"
  call
  check 'a new top-level folder is noticed' contains "$tree/build/release/.built" ' web'
  rmdir "$tree/web"
}

errors_are_told_and_recovered_from() {
  printf 'this is not C++\n' >>"$tree/apps/baton/main.cpp"
  call 0
  check 'a compile error fails' test "$status" -ne 0
  check 'a compile error keeps stdout clean' stdout_is ''
  check 'a compile error names the log' contains "$scratch/err" "the build failed; its log is $tree/build"
  check 'a compile error is shown' contains "$scratch/err" 'main.cpp:14'
  check 'the log holds it too' contains "$tree/build/release/launcher.log" 'main.cpp:14'
  call
  check 'it fails again while it stays' test "$status" -ne 0
  greet repaired
  call 0
  check 'a repair recovers' stdout_is "repaired in $PWD: <0>"

  printf 'message(FATAL_ERROR "no such luck")\n' >>"$tree/CMakeLists.txt"
  call
  check 'a configure error is told' contains "$scratch/err" 'no such luck'
  check 'a configure error fails' test "$status" -ne 0
  sed -i '$d' "$tree/CMakeLists.txt"
  printf 'half a cac' >"$tree/build/release/CMakeCache.txt"
  call 0
  check 'a broken cache recovers' stdout_is "repaired in $PWD: <0>"

  greet typo
  BATON_BUILD_JOBS=many call
  check 'a bad BATON_BUILD_JOBS is told' contains "$scratch/err" "not 'many'"
  check 'a bad BATON_BUILD_JOBS fails' equal "$status" 1
}

many_first_calls_build_once() {
  local i pids=() good=0
  rm -rf "$tree/build"
  for i in 1 2 3 4 5 6; do
    "$tree/baton" "$i" >"$scratch/out.$i" 2>"$scratch/err.$i" &
    pids+=($!)
  done
  for i in 1 2 3 4 5 6; do
    wait "${pids[i - 1]}"
    [[ $? == "$i" && $(<"$scratch/out.$i") == "typo in $PWD: <$i>" ]] && good=$((good + 1))
  done
  check 'six first calls at once all succeed' equal "$good" 6
  check 'they build once' equal "$(compiles)" 1

  printf '#error together\n' >>"$tree/apps/baton/main.cpp"
  pids=() good=0
  for i in 1 2 3 4; do
    SLOW=1 "$tree/baton" >"$scratch/out.$i" 2>"$scratch/err.$i" &
    pids+=($!)
  done
  for i in 1 2 3 4; do
    wait "${pids[i - 1]}" || good=$((good + 1))
  done
  check 'four calls of a broken tree all fail' equal "$good" 4
  check 'one of them tried' equal "$(compiles)" 2
}

# Waits until main.cpp has been taken up N times.
await_compiles() {
  local i
  for ((i = 0; i < 200; ++i)); do
    (($(compiles) >= $1)) && return
    sleep 0.05
  done
  return 1
}

killed_builds_recover() {
  local pid before
  greet survivor
  before=$(compiles)
  # Launcher, CMake and Ninja die at one stroke. Ninja's own children stand in groups of their own and
  # keep the lock until they end.
  SLOW=1 setsid "$tree/baton" >/dev/null 2>&1 &
  pid=$!
  check 'a build is under way' await_compiles $((before + 1))
  kill -KILL -- "-$pid"
  wait "$pid" 2>/dev/null
  call 0
  check 'after a killed build the next call recovers' stdout_is "survivor in $PWD: <0>"

  greet orphan
  before=$(compiles)
  SLOW=1 "$tree/baton" >/dev/null 2>&1 &
  pid=$!
  check 'another build is under way' await_compiles $((before + 1))
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null
  call 0
  check 'a build that lost its launcher is waited for' stdout_is "orphan in $PWD: <0>"
  check 'and not done twice' equal "$(compiles)" $((before + 1))
}

the_lock_is_not_inherited() {
  local pid before
  greet locked
  before=$(compiles)
  # This tree's program now outlives its launcher by a second.
  sed -i 's/return argc/if (argc > 2) sleep(1);\n  return argc/' "$tree/apps/baton/main.cpp"
  "$tree/baton" 0 stay >/dev/null 2>&1 &
  pid=$!
  await_compiles $((before + 1))
  while [[ ! -e $tree/build/release/.built ]]; do sleep 0.05; done
  sleep 0.2
  check 'a running program does not hold the lock' flock -n "$tree/build/.lock" true
  wait "$pid"
}

tests_are_run() {
  local stamp
  call 0
  call test
  check 'test exits with the code of ctest' equal "$status" 8
  check 'test builds everything' test -e "$tree/build/release/tests-built"
  check 'test shows the summary of ctest' contains "$scratch/out" '75% tests passed, 1 tests failed out of 4'
  check 'a table says what each suite took' \
    equal "$(sed -n '/^suite/,$ { s/  *[0-9.]*$//; p }' "$scratch/out" | sort)" \
    $'docs                      1\nfails                     1\ngolden                    1\npasses                    1\nsuite                 tests   seconds'
  check 'and ctest no second one' equal "$(grep -c 'Label Time Summary' "$scratch/out")" 0
  stamp=$(stat -c %y "$tree/build/release/.built")
  call 0
  check 'a run after test builds nothing' equal "$(stat -c %y "$tree/build/release/.built")" "$stamp"
  check 'a run after test is silent' silent
  call test -R passes
  check 'test hands its arguments to ctest' contains "$scratch/out" '100% tests passed, 0 tests failed out of 1'
  check 'test succeeds when tests do' equal "$status" 0
  check 'the table has the suites that ran' equal "$(sed '1,/^suite/d; s/ .*//' "$scratch/out")" passes
  call test -R no-such-test
  check 'without tests there is no table' equal "$(grep -c '^suite' "$scratch/out") $((status != 0))" '0 1'
  call test -N
  check 'nor if they are only listed' equal "$(grep -c '^suite' "$scratch/out") $status" '0 0'
  call test -R golden
  check 'test does not bless unasked' equal "$(<"$tree/build/release/golden.txt")" 'bless='
  call test --sanitize -R passes
  check '--sanitize runs what is chosen under each sanitizer' \
    equal "$(grep -c '100% tests passed, 0 tests failed out of 1' "$scratch/out") $status" '2 0'
  check '--sanitize builds apart' test -e "$tree/build/asan/tests-built" -a -e "$tree/build/tsan/tests-built"
  call test --sanitize -R fails
  check '--sanitize fails when tests do' equal "$status" 1
  call test --sanitize --bless
  check '--sanitize blesses nothing' equal "$status" 1
  call test --bless
  check '--bless runs only the tests that write' contains "$scratch/out" '100% tests passed, 0 tests failed out of 2'
  check '--bless lets them write' equal "$(cat "$tree"/build/release/{golden,layers}.txt)" $'bless=1\nbless=1'
  check '--bless asks for a review' contains "$scratch/err" 'review the change'
}

the_python_package_is_built_and_named() {
  call python quickly
  check 'python takes no arguments' contains "$scratch/err" "'python' takes no arguments"
  check 'and says so by its exit code' equal "$status" 1
  # shellcheck disable=SC2016  # CMake expands it
  printf 'add_custom_target(baton_python COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/package-built)\n' >>"$tree/CMakeLists.txt"
  call python
  check 'the package is built' test -e "$tree/build/release/package-built"
  check 'and it is said how to import it' contains "$scratch/out" "PYTHONPATH=$tree/build/release/python"
  printf 'message(STATUS "Python: not built (pybind11 is not found)")\n' >>"$tree/CMakeLists.txt"
  call python
  check 'where it cannot be built the reason is told' contains "$scratch/err" 'cannot be built: pybind11 is not found'
  check 'with an exit code' equal "$status" 1
  call 0
  check 'all else works then' equal "$status" 0
}

# In a folder of PATH where emscripten is a stand-in, which does as it is told with the compiler of this machine.
the_playground_is_built_after_what_was_asked_is_judged() {
  local PATH=$PATH page=$tree/build/playground
  if ! command -v emcc >/dev/null; then
    call playground here.html
    check 'without emscripten the playground is refused in one sentence' equal "$(<"$scratch/err")" \
      'baton: the playground is compiled with emscripten, which is missing and cannot be installed (BATON_NO_INSTALL is set).'
    check 'and with an exit code' equal "$status" 1
  fi
  shim emcc </dev/null
  # shellcheck disable=SC2016  # for the stand-in
  shim emcmake <<<'exec "$@"'
  PATH=$scratch/bin:$PATH
  # shellcheck disable=SC2016  # CMake expands it
  printf 'add_custom_command(OUTPUT playground.html COMMAND ${CMAKE_COMMAND} -E touch playground.html)
add_custom_target(playground DEPENDS playground.html)\n' >>"$tree/CMakeLists.txt"
  call playground x
  check 'what the program refuses is not built for' equal "$status$(ls -d "$page" 2>&-)" 2
  check 'it is asked before there is a page' stdout_is "locked in $PWD: <playground> <x> with later"
  call playground here.html
  check 'the page is built' test -e "$page/playground.html"
  check 'and the program told where it is' contains "$scratch/out" "<here.html> with $page/playground.html"
  check 'it says that this takes long' contains "$scratch/err" 'which takes some minutes'
  call playground here.html
  check 'the second time it does not' silent
  printf 'half a cac' >"$page/CMakeCache.txt"
  rm "$page/playground.html"
  call playground here.html
  check 'a broken cache of it recovers' test "$status" -eq 0 -a -e "$page/playground.html"
  call playground --help
  check 'help is the program'\''s alone, and asked for once' equal "$(grep -c '<--help>' "$scratch/out")" 1
  rm "$scratch/bin/emcc" "$scratch/bin/emcmake"
}

a_moved_tree_recovers() {
  local old=$tree
  tree="$scratch/moved"
  mv "$old" "$tree"
  call 0
  check 'a moved clone works' stdout_is "locked in $PWD: <0>"
}

# A PATH on which packages are as told: dpkg-query and apt-get are stand-ins, and apt-get writes what it
# was asked to $scratch/apt.
shim() { # NAME : the body comes on stdin
  mkdir -p "$scratch/bin"
  { printf '#!/bin/sh\n' && cat; } >"$scratch/bin/$1"
  chmod +x "$scratch/bin/$1"
}

in_terminal() { # ANSWER ARGS... : runs the launcher in a terminal where ANSWER is typed; all it prints goes to $scratch/out
  local answer=$1
  shift
  printf '%b' "$answer" | env -u CI script -qec "'$tree/baton' $*" /dev/null >"$scratch/out" 2>"$scratch/err"
  status=$?
}

# Called while libfmt-dev can be installed by the stand-in for apt-get.
a_terminal_is_asked() {
  local answer
  for answer in 'n\n' 'no\n' 'what\n' ''; do
    rm -f "$scratch/installed" "$scratch/apt"
    touch "$tree/CMakeLists.txt"
    in_terminal "$answer" 0
    check "in a terminal it asks and names the packages ($answer)" contains "$scratch/out" 'missing: libfmt-dev'
    check "the question says how ($answer)" contains "$scratch/out" 'apt-get? [Y/n]'
    check "without a yes nothing is installed ($answer)" test ! -e "$scratch/apt"
    check "it says what to do instead ($answer)" contains "$scratch/out" '(you declined); please install them by hand: libfmt-dev'
    check "it fails ($answer)" equal "$status" 1
  done
  rm -f "$scratch/installed" "$scratch/apt"
  touch "$tree/CMakeLists.txt"
  in_terminal 'n\n' '0 </dev/null'
  check 'it also asks if the input of the program comes from elsewhere' contains "$scratch/out" 'apt-get? [Y/n]'
  check 'and installs nothing then without a yes' test ! -e "$scratch/apt"
  for answer in '\n' 'y\n' 'Yes\n'; do
    rm -f "$scratch/installed" "$scratch/apt"
    touch "$tree/CMakeLists.txt"
    in_terminal "$answer" 0
    check "a yes installs ($answer)" contains "$scratch/apt" 'no-install-recommends libfmt-dev'
    check "and the program runs ($answer)" contains "$scratch/out" "locked in $PWD: <0>"
  done
  rm -f "$scratch/apt"
  in_terminal '' 0
  check 'a call that needs nothing asks nothing' equal "$(sed 's/\^D//g' "$scratch/out" | tr -d '\r\004\b')" "locked in $PWD: <0>"
  rm -f "$scratch/installed"
  touch "$tree/CMakeLists.txt"
  BATON_NO_INSTALL=1 in_terminal 'y\n' 0
  check 'BATON_NO_INSTALL asks nothing' equal "$(grep -c 'Y/n' "$scratch/out")" 0
  check 'and installs nothing' test ! -e "$scratch/apt"
  touch "$scratch/installed"
}

missing_packages_are_installed_or_named() {
  local PATH=$scratch/bin:$PATH
  shim dpkg-query <<SH
for p; do
  case \$p in
    libfmt-dev) test -e '$scratch/installed' && echo libfmt-dev=installed ;;
    lib*|nlohmann*|zlib*) echo "\$p=installed" ;;
  esac
done
SH
  shim apt-get <<SH
echo "\$*" >> '$scratch/apt'
case "\$*" in *install*) test -e '$scratch/offline' && { echo 'Temporary failure resolving'; exit 100; }
  touch '$scratch/installed' ;; esac
SH
  shim sudo <<'SH'
test "$1" = -n && shift
exec "$@"
SH
  # shellcheck disable=SC2016  # CMake expands it
  sed -i 's/^project.*/&\nif(NOT EXISTS $ENV{LIBFMT})\n  message(FATAL_ERROR "no libfmt")\nendif()/' \
    "$tree/CMakeLists.txt"
  export LIBFMT=$scratch/installed

  call 0
  check 'BATON_NO_INSTALL names what is missing, in one sentence' equal "$(<"$scratch/err")" \
    'baton: cannot install the missing packages (BATON_NO_INSTALL is set); please install them by hand: libfmt-dev'
  check 'BATON_NO_INSTALL fails without it' equal "$status" 1
  check 'BATON_NO_INSTALL installs nothing' test ! -e "$scratch/apt"
  LIBFMT=/ call 0
  check 'a library from elsewhere will do' stdout_is "locked in $PWD: <0>"

  unset BATON_NO_INSTALL
  touch "$tree/CMakeLists.txt" "$scratch/offline"
  call 0
  check 'no network is told' contains "$scratch/err" 'apt-get cannot reach its servers'
  check 'no network names the package' contains "$scratch/err" 'install them by hand: libfmt-dev'
  check 'no network fails' equal "$status" 1
  rm -f "$scratch/offline" "$scratch/apt"
  call 0
  check 'what is missing is installed, and said' contains "$scratch/err" 'apt-get (a minute or two): libfmt-dev'
  check 'nothing else is installed' \
    equal "$(tail -n 1 "$scratch/apt" | grep -o 'no-install-recommends.*')" 'no-install-recommends libfmt-dev'
  check 'and the program runs' stdout_is "locked in $PWD: <0>"

  a_terminal_is_asked
  export BATON_NO_INSTALL=1

  shim cmake <<'SH'
echo 'cmake version 3.18.4'
SH
  touch "$tree/CMakeLists.txt"
  call 0
  check 'an old CMake is told' contains "$scratch/err" 'CMake 3.18.4 is too old'
  rm "$scratch/bin/cmake"
  shim old++ <<'SH'
echo '#define __GNUC__ 9'
SH
  CXX=old++ call 0
  check 'an old compiler is told' contains "$scratch/err" 'old++ is GCC 9, which is too old'
  CXX=no++ call 0
  check 'a compiler that is not there is told' contains "$scratch/err" "CXX is 'no++'"
}

cd "$scratch" || exit
make_tree
first_call_builds_then_nothing_does
help_names_the_launchers_own_words
the_callers_folder_stays
changes_are_built
errors_are_told_and_recovered_from
many_first_calls_build_once
killed_builds_recover
the_lock_is_not_inherited
tests_are_run
the_python_package_is_built_and_named
the_playground_is_built_after_what_was_asked_is_judged
a_moved_tree_recovers
missing_packages_are_installed_or_named

if ((failures)); then
  printf '%d checks failed\n' "$failures"
  exit 1
fi

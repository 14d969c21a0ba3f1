#!/usr/bin/env bash
# run.sh SOURCE BUILD MPI [FLAG...]: fails, with what it finds, where clang-tidy 16 finds something in the sources of src/, apps/, bench/
# and tests/ or in a header that they include. Left out: kernels of the CUDA backend, what takes the place of the C library's functions in
# tests/faults, and wrong answers to exercises. Code that calls CUDA, also in bench/ and tests/, is read if BATON_CUDA_FOLDERS names the
# folders of its headers, separated by colons; python/src is read if BATON_PYTHON_FOLDERS names those of Python and pybind11. MPI is true
# where it is there, FLAGs are the compiler's. Without clang-tidy 16 skipped, and with CI=true failed.
#
# Reading the headers is most of the work, so that all sources are read as a few files: the laboratory, what reports it and the command
# line; all else below it; and the tests of each of the two.
set -uo pipefail
source=$1
build=$2
mpi=$3
shift 3
tidy=$(command -v clang-tidy-16) || {
  [[ ${CI:-} != true ]] || { echo "clang-tidy-16 is not there, and CI does not skip this" && exit 1; }
  echo "skipped: clang-tidy-16 is not there"
  exit 77
}

cd "$source" || exit 1
work=$build/tests/tidy/work
rm -rf "$work"
mkdir -p "$work" || exit 1
include() { printf '#include "%s/%s"  // NOLINT: read as one file\n' "$source" "$1"; }

# include_as NAME WORDS FILE: the file, with NAME standing for WORDS in it.
include_as() {
  printf '#define %s %s\n' "$1" "$2"
  include "$3"
  printf '#undef %s\n' "$1"
}

# include_test FILE: a copy of it, line by line the same, whose own names are in a namespace of their own: tests have many that are alike.
include_test() {
  local own=${1//[^a-z0-9]/_}
  mkdir -p "$work/copies/${1%/*}"
  sed -E -e "s/^namespace \{$/namespace only_$own {} using namespace only_$own; namespace only_$own {/" \
    -e "s/^(.*\bint )(main|LLVMFuzzerTestOneInput)\(/\1\2_of_$own(/" "$1" >"$work/copies/$1"
  printf '#include "%s/copies/%s"  // NOLINT: read as one file\n' "$work" "$1"
}

# Files that replace others which were built, and files that need the CUDA toolkit, are left out.
absent=mpi.cpp
[[ $mpi == [Tt][Rr][Uu][Ee] || $mpi == 1 ]] && absent=mpi_unavailable.cpp
while IFS= read -r file; do
  own=${file##*/}
  own=${own%.cpp}
  case $file in
    tests/unit/lab/* | tests/unit/predict/* | tests/unit/report/* | tests/unit/sheet/* | tests/cli/* | tests/docs/* | tests/web/* | tests/exercises/* | tests/faults/* | tests/fuzz/* | tests/ranks/train_test.cpp)
      include_test "$file" >>"$work/upper_tests.cpp" ;;
    tests/*) include_test "$file" >>"$work/lower_tests.cpp" ;;
    src/baton/lab/experiments/*) include_as lab "lab::only_$own" "$file" >>"$work/upper.cpp" ;;  # all have names of the same kind
    bench/*) include_as main "main_of_$own" "$file" >>"$work/upper.cpp" ;;
    src/baton/exercise/* | src/baton/lab/* | src/baton/predict/* | src/baton/report/* | src/baton/sheet/* | apps/*) include "$file" >>"$work/upper.cpp" ;;
    *) include "$file" >>"$work/lower.cpp" ;;
  esac
done < <(find src apps -name '*.cpp' -not -path '*/baton/cuda/*' -not -name "$absent" | sort && find bench -name '*.cpp' -not -path '*/cuda/*' | sort &&
  find tests -name '*.cpp' -not -path 'tests/cuda/*' -not -path '*/wrong/*' -not -path 'tests/faults/*_faults.cpp' | sort)
# Host code of the CUDA backend. Those that load a library use the same names for it.
if [[ -n ${BATON_CUDA_FOLDERS-} ]]; then
  grep -h '^#include' src/baton/cuda/*.cpp | sort -u >"$work/cuda.cpp"
  for file in src/baton/cuda/*.cpp; do
    own=${file##*/}
    own=${own%.cpp}
    [[ $own != *_unavailable ]] || continue
    for name in Functions load library; do printf '#define %s %s_of_%s\n' "$name" "$name" "$own"; done
    include "$file"
    for name in Functions load library; do printf '#undef %s\n' "$name"; done
  done >>"$work/cuda.cpp"
  for file in bench/cuda/*.cpp; do include "$file" >"$work/bench_${file##*/}"; done  # each has a main and classes of the same names
  for file in tests/cuda/*.cpp; do include_test "$file"; done >"$work/cuda_tests.cpp"
fi
if [[ -n ${BATON_PYTHON_FOLDERS-} ]]; then
  for file in python/src/*.cpp; do include "$file"; done >"$work/python.cpp"
fi
# Where a layer's tests have a namespace `test` too, it does not hide the common one.
for file in "$work"/*_tests.cpp; do
  {
    echo 'namespace baton::test {}'
    grep -rhoE '^namespace baton::[a-z]+::test\b' tests | sort -u | sed 's/$/ { using namespace baton::test; }/'
    cat "$file"
  } >"$work/whole" && mv "$work/whole" "$file"
done
# What stands for other words must not do so in a header.
{
  grep -h '^#include' src/baton/lab/experiments/*.cpp bench/*.cpp | sort -u
  cat "$work/upper.cpp"
} >"$work/whole" && mv "$work/whole" "$work/upper.cpp"

# A benchmark's main returns nothing if it has another name.
flags=(-std=c++20 -Wno-return-type -Ibench -Itests -Itests/cli -Itests/fuzz -Itests/unit/data '-DBATON_VERSION=""' '-DBATON_COMPILER=""' '-DBATON_CUDA_MISSING=""'
  '-DBATON_CUDA_LIBRARIES=""' '-DBATON_CHOICES_HASH=""' '-DBATON_EXERCISE_FLAGS=""' '-DBATON_LIBRARY_FOLDER="lib"'
  '-DBATON_TEST_DATA=""' '-DBATON_PROGRAM=""' '-DBATON_SOURCE=""' '-DBATON_FILE_FAULTS=""' '-DBATON_ALLOCATION_FAULTS=""'
  '-DBATON_MPIEXEC=""' '-DBATON_MPIRUN=""' -DBATON_HAS_MPI=1 "$@")
IFS=: read -ra folders <<<"${BATON_CUDA_FOLDERS-}:${BATON_PYTHON_FOLDERS-}"
for folder in "${folders[@]}"; do
  [[ -z $folder || $folder == /usr/include ]] || flags+=(-isystem "$folder")
done
for layer in "$build"/layers/*; do
  flags+=("-I$layer")
done
# What is printed stands together: a file's findings in one write. In tests, speed is not judged, nor products of small numbers.
export tidy work
printf '%s\0' "$work"/*.cpp |
  xargs -0 -P 2 -I{} bash -c 'checks=""
    [[ $1 != *_tests.cpp ]] || checks="-performance-*,-bugprone-implicit-widening-of-multiplication-result"
    found=$("$tidy" --quiet --config-file=.clang-tidy "--checks=$checks" "--header-filter=/(src|layers|apps|bench|tests)/" "$@" 2>&1)
    status=$?
    ((status == 0)) || printf "%s\n" "${found//"$work/copies/"/}"
    exit "$status"' tidy {} -- "${flags[@]}"

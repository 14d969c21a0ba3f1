#!/usr/bin/env bash
# run.sh SOURCE BUILD MPI [FLAG...]: fails, with what it finds, where clang-tidy 16 finds something in the sources of src/, apps/ and
# bench/ (but kernels and the benchmarks of the CUDA backend) or in a header that they include. Code that calls CUDA is read if
# BATON_CUDA_FOLDERS names the folders of its headers, separated by colons. MPI is true where it is there, FLAGs are the compiler's. Without clang-tidy 16 skipped, and with CI=true failed.
#
# Reading the headers is most of the work, so that all sources are read as two files of about the same length: the laboratory, what reports
# it and the command line; and all else.
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

# Whoever stands for another that was built, or takes the CUDA toolkit, is left out.
absent=mpi.cpp
[[ $mpi == [Tt][Rr][Uu][Ee] || $mpi == 1 ]] && absent=mpi_unavailable.cpp
while IFS= read -r file; do
  own=${file##*/}
  own=${own%.cpp}
  case $file in
    src/baton/lab/experiments/*) include_as lab "lab::only_$own" "$file" >>"$work/upper.cpp" ;;  # all have names of the same kind
    bench/*) include_as main "main_of_$own" "$file" >>"$work/upper.cpp" ;;
    src/baton/exercise/* | src/baton/lab/* | src/baton/predict/* | src/baton/report/* | src/baton/sheet/* | apps/*) include "$file" >>"$work/upper.cpp" ;;
    *) include "$file" >>"$work/lower.cpp" ;;
  esac
done < <(find src apps -name '*.cpp' -not -path '*/baton/cuda/*' -not -name "$absent" | sort && find bench -name '*.cpp' -not -path '*/cuda/*' | sort)
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
fi
# What stands for other words must not do so in a header.
{
  grep -h '^#include' src/baton/lab/experiments/*.cpp bench/*.cpp | sort -u
  cat "$work/upper.cpp"
} >"$work/whole" && mv "$work/whole" "$work/upper.cpp"

# A benchmark's main returns nothing if it has another name.
flags=(-std=c++20 -Wno-return-type -Ibench '-DBATON_VERSION=""' '-DBATON_COMPILER=""' '-DBATON_CUDA_MISSING=""'
  '-DBATON_CUDA_LIBRARIES=""' '-DBATON_CHOICES_HASH=""'
  '-DBATON_EXERCISE_FLAGS=""' '-DBATON_LIBRARY_FOLDER="lib"' "$@")
IFS=: read -ra folders <<<"${BATON_CUDA_FOLDERS-}"
for folder in "${folders[@]}"; do
  flags+=(-isystem "$folder")
done
for layer in "$build"/layers/*; do
  flags+=("-I$layer")
done
# What is printed stands together: a file's findings in one write.
export tidy
printf '%s\0' "$work"/*.cpp |
  xargs -0 -P 2 -I{} bash -c 'found=$("$tidy" --quiet --config-file=.clang-tidy "--header-filter=/(src|layers|apps|bench)/" "$@" 2>&1)
    status=$?
    ((status == 0)) || printf "%s\n" "$found"
    exit "$status"' tidy {} -- "${flags[@]}"

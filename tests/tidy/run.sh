#!/usr/bin/env bash
# run.sh SOURCE BUILD MPI [FLAG...]: fails, with what it finds, where clang-tidy 16 finds something in the sources of src/ (but the CUDA
# backend's, which take the toolkit), apps/ and bench/ or in a header that they include. MPI is true where it is
# there, FLAGs are the compiler's. Skipped without clang-tidy 16.
#
# Reading the headers is most of the work, so that the sources of a folder are read as one file. A source whose own names are another's
# too stands in `apart` and is read by itself; where one is missing there, what is found says "redefinition".
set -uo pipefail
source=$1
build=$2
mpi=$3
shift 3
tidy=$(command -v clang-tidy-16) || {
  echo "skipped: clang-tidy-16 is not there"
  exit 77
}
apart=(apps/baton/guard.cpp src/baton/cluster/machine.cpp src/baton/exec/ranks/mpi_unavailable.cpp src/baton/lab/collectives.cpp
  src/baton/lab/pulse.cpp src/baton/lab/rest.cpp src/baton/lab/store.cpp)

cd "$source" || exit 1
work=$build/tests/tidy/work
rm -rf "$work"
mkdir -p "$work" || exit 1
include() { printf '#include "%s/%s"  // NOLINT: read as one file\n' "$source" "$1"; }

while IFS= read -r file; do
  [[ $file == */ranks/mpi.cpp && $mpi != [Tt][Rr][Uu][Ee] && $mpi != 1 ]] && continue
  folder=${file%/*}
  name=${folder//\//_}
  if [[ $folder == bench || " ${apart[*]} " == *" $file "* ]]; then
    name=${file//\//_}
    name=${name%.cpp}
  fi
  if [[ $folder == src/baton/lab/experiments ]]; then
    # Every experiment opens, derives and finds: each in a namespace of its own, once the headers are read.
    [[ -e $work/$name.cpp ]] || grep -h '^#include' "$folder"/*.cpp | sort -u >"$work/$name.cpp"
    own=${file##*/}
    {
      printf '#define lab lab::only_%s\n' "${own%.cpp}"
      include "$file"
      printf '#undef lab\n'
    } >>"$work/$name.cpp"
  else
    include "$file" >>"$work/$name.cpp"
  fi
done < <(find src apps bench -name '*.cpp' -not -path '*/backend/cuda/*' | sort)

flags=(-std=c++20 -Ibench '-DBATON_VERSION=""' '-DBATON_COMPILER=""' '-DBATON_CUDA_MISSING=""'
  '-DBATON_CUDA_LIBRARIES=""' "$@")
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

#!/bin/sh
# Runs a command under mpirun, also as root and with more ranks than cores. 77 says that there is no MPI.
#   mpirun.sh HAS_MPI MPIRUN ARGS...
has_mpi=$1 mpirun=$2
shift 2
case $has_mpi in
  TRUE | ON | 1) ;;
  *) echo "skipped: baton was built without MPI" && exit 77 ;;
esac
[ -x "$mpirun" ] || mpirun=$(command -v mpirun) || { echo "skipped: there is no mpirun" && exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none
# Open MPI keeps what it took until the end, which is not a leak of ours.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS-}"
exec "$mpirun" "$@"

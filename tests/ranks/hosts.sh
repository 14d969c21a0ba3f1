#!/bin/bash
# Runs a command as ranks on several hosts that are network namespaces of this machine, joined by a switch, which is one too.
#   hosts.sh [--hosts N] [--rate 1gbit] [--ranks N] MPIRUN COMMAND...
# --rate shapes what each host sends; packets are cut to the wire's size by nobody, as where a network card does it. Hosts are node0, node1, ... with a name and a network of their own; ranks go to them in
# turn. 77 says that this cannot be done here: it takes root, ip and tc.
set -uo pipefail

hosts=2 rate='' ranks=''
while [[ ${1-} == --* ]]; do
  case $1 in
    --hosts) hosts=$2 ;;
    --rate) rate=$2 ;;
    --ranks) ranks=$2 ;;
    *) echo "hosts.sh does not know $1" >&2 && exit 2 ;;
  esac
  shift 2
done
mpirun=$1
shift
ranks=${ranks:-$hosts}

skip() {
  echo "skipped: $*"
  exit 77
}
((EUID == 0)) || skip 'hosts that are namespaces take root'
command -v ip >/dev/null || skip 'there is no ip (iproute2)'
[[ -z $rate ]] || command -v tc >/dev/null || skip 'there is no tc (iproute2)'
[[ -x $mpirun ]] || skip 'there is no mpirun'

id=b$$ # names of interfaces are short
scratch=$(mktemp -d)
clean() {
  local n
  for ((n = 0; n < hosts; ++n)); do ip netns del "$id-$n" 2>/dev/null; done
  ip netns del "$id-switch" 2>/dev/null
  rm -rf -- "$scratch"
}
trap clean EXIT
trap 'exit 130' INT TERM

subnet=10.$((77 + $$ % 100)).$((($$ / 100) % 250))
{ ip netns add "$id-switch" && ip -n "$id-switch" link add bridge type bridge && ip -n "$id-switch" link set bridge up; } 2>/dev/null ||
  skip 'no bridge can be made here'
# What passes the switch no filter looks at, and hosts send as Linux does where nothing else is asked for: what else this machine may be
# set to costs the processors that the hosts compute with.
ip netns exec "$id-switch" sysctl -qw net.bridge.bridge-nf-call-{ip,ip6,arp}tables=0 2>/dev/null
for ((n = 0; n < hosts; ++n)); do
  { ip netns add "$id-$n" && ip link add "port$n" netns "$id-switch" type veth peer name eth0 netns "$id-$n" &&
    ip -n "$id-switch" link set "port$n" master bridge up && ip -n "$id-$n" addr add "$subnet.$((n + 1))/24" dev eth0 &&
    ip -n "$id-$n" link set eth0 up && ip -n "$id-$n" link set lo up; } 2>/dev/null || skip 'no network namespace can be made here'
  ip netns exec "$id-$n" sysctl -qw net.ipv4.tcp_congestion_control=cubic 2>/dev/null
  if [[ -n $rate ]]; then
    tc -n "$id-$n" qdisc add dev eth0 root tbf rate "$rate" burst 256k latency 50ms 2>/dev/null || skip 'the bandwidth cannot be shaped here'
  fi
  printf '%s.%s slots=64\n' "$subnet" "$((n + 1))" >>"$scratch/hosts"
done

# What mpirun starts its daemons on other hosts with: the host's address, then the command.
cat >"$scratch/agent" <<AGENT
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
number=\$((\${1##*.} - 1))
shift
exec ip netns exec "$id-\$number" unshare --uts bash -c "hostname node\$number && \$*"
AGENT
chmod +x "$scratch/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_plm_rsh_agent=$scratch/agent
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=$subnet.0/24 OMPI_MCA_oob_tcp_if_include=$subnet.0/24
# Open MPI keeps what it took until the end, which is not a leak of ours.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS-}"
ip netns exec "$id-0" unshare --uts bash -c 'hostname node0 && exec "$@"' - \
  "$mpirun" --hostfile "$scratch/hosts" --map-by node -n "$ranks" "$@"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command with four nodes: network namespaces of this computer, joined by a bridge.
#   sh four_nodes.sh BITS_PER_SECOND PERCENT COMMAND...
# A token bucket of `tc` limits each port to this rate at both of its ends, with a burst of 64 KiB. The processes of a
# node have this part of one processor. Both are one number, or four with commas between them. COMMAND starts a program
# on all nodes, one process each, with
#   "$CHUNKMEM_ON_NODES" PROGRAM ARGUMENTS...
# which is Open MPI over TCP. It may do so several times. Returns the status of COMMAND; 4 where a part is missing,
# after a line that names the part.
#
# Everything is in namespaces of processes, mounts and networks of its own, which end with their first process. So
# nothing is left on the computer, even if this script is killed. A killed script leaves empty processor groups and a
# folder of scripts, which the next run removes.
set -eu

skip() {
  echo "SKIPPED: four nodes need $*"
  exit 4
}

groups=/sys/fs/cgroup/cpu
nodes="1 2 3 4"
# of NUMBERS NODE: the number of a node
of() { echo "$1,$1,$1,$1" | cut -d , -f "$2"; }

# Inside: the first process of the namespaces. Its network is the bridge's.
if [ "${1-}" = inside ]; then
  rates=$2 folder=$3 group=$4
  shift 4
  mkdir -p /run/netns
  mount -t tmpfs none /run/netns
  ip link set lo up
  ip link add bridge type bridge
  ip address add 10.0.0.254/24 dev bridge
  ip link set bridge up
  for node in $nodes; do
    ip netns add "10.0.0.$node"
    ip link add "port$node" type veth peer name port netns "10.0.0.$node"
    ip link set "port$node" master bridge
    ip -n "10.0.0.$node" address add "10.0.0.$node/24" dev port
    rate=$(of "$rates" "$node")
    tc qdisc add dev "port$node" root tbf rate "$rate"bit burst 64kb latency 200ms
    ip netns exec "10.0.0.$node" tc qdisc add dev port root tbf rate "$rate"bit burst 64kb latency 200ms
    ip link set "port$node" up
    ip -n "10.0.0.$node" link set port up
    ip -n "10.0.0.$node" link set lo up
  done
  # What mpirun calls in place of ssh: agent ADDRESS COMMAND...
  cat >"$folder/agent" <<END
#!/bin/sh
address=\$1
shift
echo \$\$ >"$group-\${address##*.}/cgroup.procs"
exec ip netns exec "\$address" unshare --uts sh -c 'hostname "node\$1"; exec sh -c "\$2"' sh "\${address##*.}" "\$*"
END
  cat >"$folder/on_nodes" <<END
#!/bin/sh
exec mpirun --mca plm rsh --mca plm_rsh_agent "$folder/agent" --mca orte_tmpdir_base "$folder" \\
  --mca btl tcp,self --mca btl_tcp_if_include 10.0.0.0/24 --mca oob_tcp_if_include 10.0.0.0/24 \\
  --mca orte_keep_fqdn_hostnames 1 --mca mpi_yield_when_idle 1 --bind-to none \\
  --host 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4 -np 4 "\$@"
END
  chmod +x "$folder/agent" "$folder/on_nodes"
  export CHUNKMEM_ON_NODES="$folder/on_nodes"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  unset OMPI_MCA_plm # of tests that start all processes here
  status=0
  "$@" || status=$?
  exit "$status"
fi

number='[1-9][0-9]*'
part='([1-9][0-9]?|100)'
if [ $# -lt 3 ] || ! echo "$1 $2" | grep -Eqx "$number(,$number,$number,$number)? $part(,$part,$part,$part)?"; then
  echo "four nodes need a rate in bits per second, a part of a processor from 1 to 100 percent, and a command" >&2
  exit 2
fi
rates=$1 percents=$2
shift 2
PATH=$PATH:/usr/sbin:/sbin
export PATH
[ "$(id -u)" = 0 ] || skip "root rights"
for tool in ip tc unshare setpriv mpirun; do
  command -v "$tool" >/dev/null || skip "$tool"
done
mpirun --version 2>/dev/null | grep -q "Open MPI" || skip "Open MPI"
mkdir "$groups/chunkmem-$$-1" 2>/dev/null || skip "the processor's groups of cgroup v1 in $groups, to be written"
folder=$(mktemp -d /tmp/chunkmem-nodes-$$-XXXXXX)
# shellcheck disable=SC2317 # the trap calls it
remove() {
  for left in "$groups"/chunkmem-*-[1-4] /tmp/chunkmem-nodes-*-??????; do
    owner=${left##*/chunkmem-}
    owner=${owner#nodes-}
    owner=${owner%-*}
    { [ "$owner" != $$ ] && kill -0 "$owner" 2>/dev/null; } && continue
    case "$left" in
      /tmp/*) rm -rf "$left" ;;
      *) rmdir "$left" 2>/dev/null || true ;;
    esac
  done
}
trap remove EXIT
trap 'exit 130' HUP INT TERM
for node in $nodes; do
  mkdir -p "$groups/chunkmem-$$-$node"
  echo 20480 >"$groups/chunkmem-$$-$node/cpu.shares" # its part is there, also beside other programs
  echo $((100000 / $(of "$percents" "$node"))) >"$groups/chunkmem-$$-$node/cpu.cfs_period_us"
  echo 1000 >"$groups/chunkmem-$$-$node/cpu.cfs_quota_us" # the least, so that pauses are short
done
# Replaces a shell, which would survive a kill of this script.
inside() { exec setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child --mount-proc "$@"; }
said=$(inside sh -c 'ip link add test type dummy && tc qdisc add dev test root tbf rate 1mbit burst 64kb latency 1ms' 2>&1) ||
  (inside sh -c 'ip link add test type bridge && tc qdisc add dev test root tbf rate 1mbit burst 64kb latency 1ms') 2>/dev/null ||
  skip "namespaces, and token buckets (tc) in the kernel: $said"
status=0
exec 3<&0 # else it is empty for what runs beside the shell
inside sh "$0" inside "$rates" "$folder" "$groups/chunkmem-$$" "$@" <&3 &
nodes_of=$! # a shell runs a trap between commands, or while it waits
trap 'kill -9 $nodes_of; exit 130' HUP INT TERM
wait "$nodes_of" || status=$?
exit "$status"

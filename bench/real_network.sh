#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The virtual network beside TCP: training on two MPI ranks in two network namespaces, joined by a bridge whose
# links are throttled (veth, tbf), and the same run with --network. Prints both step times, and the bytes that ranks say
# they sent beside the payload that the network cards counted. Needs root, Open MPI and a quiet machine.
#   bench/real_network.sh [--build FOLDER] [--rates "50 100 200"] [--steps N] [-- FLAGS OF abtrain train]
# A link carries payload at 0.936 of its rate: 1448 of 1514 bytes of a packet, and an acknowledgement of 66 bytes comes back
# for every two. That is the virtual network's bandwidth. Messages go out without asking the receiver first
# (btl_tcp_eager_limit): an answer would queue behind what the receiver itself sends, and only one direction works at a time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build rates="50 100 200" steps=6
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2 ;;
    --rates) rates=$2 ;;
    --steps) steps=$2 ;;
    --) shift; break ;;
    *) echo "real_network.sh: unknown argument $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ "$(id -u)" = 0 ] || { echo "real_network.sh: needs root, to make network namespaces" >&2; exit 2; }

build=$(realpath "$build")
files=$(mktemp -d)
training=("$@")
[ $# -gt 0 ] || training=(--model vgg16_bn --width 0.25 --dataset synthetic --data-dir "$files/data" --train-samples 4096
  --val-samples 64 --batch-size 32)
remove_network() {
  for i in 1 2; do
    ip netns del "abtrain$i" 2>/dev/null || true
    ip link del "abtrain_if$i" 2>/dev/null || true
  done
  ip link del abtrain_br 2>/dev/null || true
}
trap 'remove_network; rm -rf "$files"' EXIT

make_network() {  # MBIT
  remove_network
  ip link add abtrain_br type bridge
  ip link set abtrain_br up
  ip addr add 10.77.0.254/24 dev abtrain_br
  for i in 1 2; do
    ip netns add "abtrain$i"
    ip link add "abtrain_if$i" type veth peer name eth0 netns "abtrain$i"
    ip link set "abtrain_if$i" master abtrain_br up
    ip netns exec "abtrain$i" bash -c "
      ip addr add 10.77.0.$i/24 dev eth0; ip link set lo up; ip link set eth0 up
      sysctl -q net.ipv4.tcp_slow_start_after_idle=0 'net.ipv4.tcp_wmem=4096 4194304 67108864' \
        'net.ipv4.tcp_rmem=4096 4194304 67108864'
      tc qdisc replace dev eth0 root tbf rate $1mbit burst 64kb limit 64mb"
    tc qdisc replace dev "abtrain_if$i" root tbf rate "$1mbit" burst 64kb limit 64mb
  done
}

# What mpirun calls in place of ssh: a node is a namespace with a host name of its own.
cat >"$files/in_namespace" <<'AGENT'
#!/usr/bin/env bash
host=$1
shift
exec ip netns exec "abtrain${host##*.}" unshare -u sh -c "hostname node${host##*.}; $*"
AGENT
chmod +x "$files/in_namespace"

train() {  # NAME, then what goes before and after the program, apart by --
  local name=$1 launch=()
  shift
  while [ "$1" != -- ]; do launch+=("$1"); shift; done
  shift
  mpirun --allow-run-as-root -np 2 "${launch[@]}" "$build/apps/abtrain" train "${training[@]}" --steps "$steps" \
    --threads 1 --ranks-per-node 1 --eval-every 0 --out "$files/$name" "$@" >"$files/log" 2>&1 ||
    { cat "$files/log" >&2; exit 1; }
}
# Payload that a node has sent, in the mean: 66 bytes of a packet are headers of Ethernet, IP and TCP.
sent_by_cards() {
  local counters bytes=0
  for counters in /sys/class/net/abtrain_if[12]/statistics; do
    bytes=$((bytes + $(cat "$counters/rx_bytes") - 66 * $(cat "$counters/rx_packets")))
  done
  echo $((bytes / 2))
}

printf '%-12s%12s%12s%8s%16s%16s%8s\n' "Mbit/s" "TCP s/step" "virtual" "TCP/it" "ledger bytes" "card's payload" "card/it"
for rate in $rates; do
  make_network "$rate"
  before=$(sent_by_cards)
  train "tcp_$rate" --host 10.77.0.1:1,10.77.0.2:1 --mca plm_rsh_agent "$files/in_namespace" --mca plm_rsh_no_tree_spawn 1 \
    --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
    --mca btl_tcp_eager_limit 16000000 --mca btl_tcp_rndv_eager_limit 16000000 --mca btl_tcp_max_send_size 16000000 --
  counted=$(($(sent_by_cards) - before))
  train "virtual_$rate" --oversubscribe -- --network "bandwidth=$(awk "BEGIN { print 0.936 * $rate }")Mbps"
  python3 - "$files" "$rate" "$counted" <<'PYTHON'
import json, sys
files, rate, counted = sys.argv[1], sys.argv[2], int(sys.argv[3])
tcp, virtual = (json.load(open(f"{files}/{kind}_{rate}/summary.json")) for kind in ("tcp", "virtual"))
step = lambda run: run["train_seconds"] / run["steps"]
sent = tcp["sent_bytes_per_rank_total"]
print(f"{rate:<12}{step(tcp):12.3f}{step(virtual):12.3f}{step(tcp) / step(virtual):8.3f}{sent:16.0f}{counted:16}{counted / sent:8.4f}")
PYTHON
done

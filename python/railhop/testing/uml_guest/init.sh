#!/bin/sh
# Process 1 of a guest: makes the file systems and the network, then becomes the agent.
#
# The host copies this file into a folder of its own and writes guest.env beside it (see
# ../uml/machine.py for what is in there). The root is the host's own, read-only, through hostfs.
# Few programs are run on purpose: each start costs 10 to 40 ms here.
set -eu
private=$(dirname "$0")
# shellcheck source=/dev/null
. "$private/guest.env"
export PATH=/run/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TERM=dumb
# The guest kernel keeps no AVX-512 state across a signal, and glibc's memcpy uses it where the host
# has it: a signal at the wrong moment would change bytes. AVX2 is kept.
export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ln -s /proc/self/fd /dev/fd
mount -t tmpfs tmpfs /run
mkdir -p /run/bin /run/upper /run/work /run/scratch
# What the host has in /tmp is there to read; what the guest writes there stays in the guest. Only
# the scratch folder is shared both ways. (hostfs takes the folder as its option.)
mount -t hostfs none /run/scratch -o "$SCRATCH"
mount -t overlay overlay /tmp -o lowerdir=/tmp,upperdir=/run/upper,workdir=/run/work
mount -t tmpfs tmpfs /var/tmp
case $SCRATCH in
  /tmp/* | /var/tmp/*) mkdir -p "$SCRATCH" ;;
esac
mount --bind /run/scratch "$SCRATCH"
printf '#!/bin/sh\nexec "%s" -E -s -S "%s" "$@"\n' "$PYTHON" "$GUEST_DIR/link.py" >/run/bin/railhop-link
chmod +x /run/bin/railhop-link
echo "$GUEST_NAME" >/proc/sys/kernel/hostname

# Both ends of a rail are in one network namespace. Without these settings a packet to the other end
# would take the short way over lo, and a bridge would answer ARP for a NIC's address.
for conf in /proc/sys/net/ipv4/conf/all /proc/sys/net/ipv4/conf/default; do
  echo 0 >"$conf/rp_filter"
  echo 1 >"$conf/accept_local"
  echo 1 >"$conf/arp_ignore"
  echo 2 >"$conf/arp_announce"
done

# Rail n is the switch sw<n> (a bridge) with rank A's NIC a<n> at port pa<n> and rank B's b<n> at
# pb<n>. With two hosts each has its own NICs and switch, and uplink vec<n> joins the switches.
rail=0
ip_words='link set lo up'
rdma_words=
nl='
'
while [ "$rail" -lt "$RAILS" ]; do
  ip_words="$ip_words${nl}link add sw$rail mtu $MTU type bridge${nl}link set sw$rail up"
  for side in $SIDES; do
    case $side in a) host=1 ;; *) host=2 ;; esac
    nic=$side$rail
    ip_words="$ip_words
link add $nic mtu $MTU address 02:00:00:00:0$host:$(printf %02x "$rail") type veth peer name p$nic mtu $MTU
link set p$nic master sw$rail up
link set $nic up
address add 10.0.$rail.$host/24 dev $nic"
    rdma_words="${rdma_words}link add rx$nic type rxe netdev $nic$nl"
  done
  if [ -n "$OOB_ADDRESS" ]; then
    ip_words="$ip_words${nl}link set vec$rail master sw$rail up"
  fi
  rail=$((rail + 1))
done
if [ -n "$OOB_ADDRESS" ]; then
  ip_words="$ip_words
link set vec$RAILS name oob0 up
address add $OOB_ADDRESS/24 dev oob0"
fi
echo "$ip_words" | ip -b -
[ -z "$rdma_words" ] || printf %s "$rdma_words" | rdma -b -

# shellcheck disable=SC3045 # dash and busybox have it
ulimit -l unlimited
exec "$PYTHON" -E -s -S "$GUEST_DIR/agent.py"

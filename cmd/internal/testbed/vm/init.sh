#!/usr/bin/busybox sh
# Process 1 of the machine: it mounts, loads modules, runs the command of /vm/job, says how it ended, and powers off.
b=/usr/bin/busybox
export PATH=/usr/sbin:/usr/bin HOME=/root TERM=dumb LANG=C.UTF-8

# end says the result on the console and on its port. stty waits until the host has what was written.
end() {
  echo "vm: $1"
  echo "$1" >&4
  for port in 1 3 4; do $b stty -echo <&$port; done
  $b poweroff -f
}

for m in proc:/proc sysfs:/sys cgroup2:/sys/fs/cgroup \
  devtmpfs:/dev devpts:/dev/pts tmpfs:/dev/shm tmpfs:/run tmpfs:/tmp; do
  $b mkdir -p "${m#*:}" # in what was mounted before
  $b mount -t "${m%:*}" "${m%:*}" "${m#*:}"
done
$b ln -s /proc/self/fd /dev/fd
$b ln -s fd/0 /dev/stdin # the source "-" of old versions of nft
$b hostname vm
$b ip link set lo up
# An emulated processor that starts a program leaves packets between namespaces alone for seconds: with room for 1,000,
# as usual, 165,000 of 290,000 were dropped.
echo 100000 >/proc/sys/net/core/netdev_max_backlog
$b ln -s 0.0.0 "/usr/lib/modules/$($b uname -r)"
read -r uptime rest </proc/uptime
echo "vm: booted after $uptime s"

# The ports are of modules, which may be part of the kernel, and can be opened some time after these are loaded. They
# take bytes as they are, as long as they are open.
for module in virtio_pci virtio_console; do $b modprobe -q $module; done
for port in /dev/hvc0 /dev/hvc1; do
  for try in $($b seq 100); do
    if (true >$port) 2>/dev/null; then break; fi
    $b sleep 0.1
  done
done
exec 3>/dev/hvc0 4>/dev/hvc1
for port in 3 4; do $b stty -opost -echo -icanon -isig <&$port; done

. /vm/job # cd, and the command as $1 and so on
program=$($b which "$1") || end "error find the command: $1" # busybox would prefer its own program to one of this name
shift
$b setsid "$program" "$@" </dev/null >&3 2>&3 3>&- 4>&-
code=$?
kill -KILL -1 # the processes that the command left; there may be none
end "exit $code"

# Control groups of the cluster $name: one of that name in each hierarchy of version 1, or the one of version 2. Below it,
# system has the processes that the cluster starts, and each node's name the containers of that node.
set -euo pipefail
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  version=2 roots=/sys/fs/cgroup leading=/sys/fs/cgroup
else # symbolic links are second names of hierarchies with several controllers
  version=1 roots=$(find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d) leading=/sys/fs/cgroup/pids
fi
[ -d "$leading" ] || { echo "no control groups: $leading is not mounted" >&2; exit 1; }

# share lets a new group use what its parent $1 has. A new group of version 1 has no processor and no memory. kubelet refuses
# to work below a group of version 2 that lacks one of the machine's controllers.
share() {
  if [ $version = 1 ]; then
    for f in cpuset.cpus cpuset.mems; do
      if [ -e "$1/$f" ]; then cat "$1/$f" >"$2/$f"; fi
    done
  else
    for c in cpu cpuset hugetlb io memory pids; do
      if grep -qw $c "$1/cgroup.controllers"; then echo +$c >"$1/cgroup.subtree_control"; fi
    done
  fi
}

# make_group makes the group $1 of the cluster.
make_group() {
  for root in $roots; do
    mkdir -p "$root/$name"
    share "$root" "$root/$name"
    mkdir -p "$root/$name/$1"
    share "$root/$name" "$root/$name/$1"
  done
}

# processes prints the IDs of all processes in the groups.
processes() {
  if [ -d "$leading/$name" ]; then
    find "$leading/$name" -name cgroup.procs -exec cat {} + 2>/dev/null | grep -vxE '[01]' || true
  fi
}

# kill_all kills all processes, and removes the groups.
kill_all() {
  for try in $(seq 600); do
    pids=$(processes)
    if [ -n "$pids" ]; then
      kill -KILL $pids 2>/dev/null || true
    else
      left=
      for root in $roots; do
        if [ -d "$root/$name" ]; then find "$root/$name" -depth -type d -exec rmdir {} + 2>/dev/null || left=$root; fi
      done
      if [ -z "$left" ]; then return; fi
    fi
    sleep 0.05
  done
  echo "processes or groups of $name do not end: $pids" >&2
  return 1
}

# Sets up the namespaces that this shell is in, and holds them. Links that are added later have the settings "default".
set -eu
ip link set lo up
for which in all default; do
  for setting in \
    ipv4/conf/$which/rp_filter=0 ipv4/conf/$which/send_redirects=0 ipv4/conf/$which/accept_redirects=0 \
    ipv6/conf/$which/accept_redirects=0 ipv6/conf/$which/disable_ipv6=0 ipv6/conf/$which/accept_ra=0 ipv6/conf/$which/accept_dad=0 \
    ipv4/conf/$which/forwarding={{.Forward}} ipv6/conf/$which/forwarding={{.Forward}}
  do
    echo "${setting#*=}" >"/proc/sys/net/${setting%=*}"
  done
done
echo {{.Forward}} >/proc/sys/net/ipv4/ip_forward
{{- if .Folder}}
# kubelet, containerd, runc and CNI plugins keep state in /run and /var. The host sees none of these mounts; containers may
# share mounts with the node, as kubelet requires.
hostname {{.Space}}
cd '{{.Folder}}'
mkdir -p run/lock var/lib var/log var/cache var/tmp
ln -s /run var/run
mount --bind run /run
mount --bind var /var
mount --make-rshared /
cd /
{{- end}}
exec sleep infinity

# Makes vmapd.yaml a manifest that uses kube-proxy's own ConfigMap as it is, with every setting:
#
#   sed -f cmd/vmapd/deploy/from-kube-proxy.sed cmd/vmapd/deploy/vmapd.yaml
#
# The files are in kube-proxy's folder, which its config.conf names; of the ConfigMap vmapd, only
# vmapd.yaml remains, with settings that kube-proxy does not have.
/^  # kube-proxy's file\./,/^    current-context: default/d
s|/var/lib/vmapd|/var/lib/kube-proxy|g
s|^        configMap: {name: vmapd}|        projected: {sources: [{configMap: {name: kube-proxy}}, {configMap: {name: vmapd}}]}|

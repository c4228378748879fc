{{/* The image's name. */}}
{{- define "vmapd.image" -}}
{{- $image := .Values.image -}}
{{- if not $image.repository -}}
{{- fail "image.repository is required: where your nodes get vmapd's image, for instance --set image.repository=example.org/vmapd" -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Where the configuration is mounted: kube-proxy's config.conf names its own folder. */}}
{{- define "vmapd.dir" -}}
{{- if .Values.kubeProxyConfigMap }}/var/lib/kube-proxy{{ else }}/var/lib/vmapd{{ end -}}
{{- end -}}

{{/* The parts that all containers have. */}}
{{- define "vmapd.imageOf" -}}
image: {{ include "vmapd.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{/* The parts that both containers of the daemon's pods have. */}}
{{- define "vmapd.container" -}}
{{ include "vmapd.imageOf" . }}
env:
{{- /* apiVersion is the API server's default, too. Without it, Helm 4 finds a conflict in objects that kubectl has applied. */}}
- name: NODE_NAME
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}
{{- end -}}

{{- define "vmapd.args" -}}
- --config={{ include "vmapd.dir" . }}/config.conf
- --vmapd-config={{ include "vmapd.dir" . }}/vmapd.yaml
- --hostname-override=$(NODE_NAME)
{{- end -}}

{{/* config.conf. */}}
{{- define "vmapd.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $mode := $config.detectLocalMode | default "ClusterCIDR" -}}
{{- if and (eq $mode "ClusterCIDR") (not $config.clusterCIDR) -}}
{{- fail "config.clusterCIDR is required: the pods' ranges, for instance --set config.clusterCIDR=10.244.0.0/16 (one of each family, with a comma: '10.244.0.0/16\\,fd00:10:244::/56'), or another config.detectLocalMode" -}}
{{- end -}}
{{- $client := mergeOverwrite ($config.clientConnection | default dict) (dict "kubeconfig" "/var/lib/vmapd/kubeconfig.conf") -}}
{{- $head := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha1" "kind" "KubeProxyConfiguration" "clientConnection" $client -}}
{{- mergeOverwrite $config $head | toYaml -}}
{{- end -}}

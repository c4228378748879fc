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

{{/* The name of the ConfigMap has the hash of its content: the DaemonSet's rolling update gates each change. */}}
{{- define "vmapd.configMap" -}}
vmapd-{{ include "vmapd.files" . | sha256sum | trunc 10 }}
{{- end -}}

{{/* The configuration that has the addresses of health and metrics. kube-proxy's is read from the cluster; "helm
template" reads none, and takes the default. */}}
{{- define "vmapd.addresses" -}}
{{- if .Values.kubeProxyConfigMap -}}
{{- $map := lookup "v1" "ConfigMap" .Release.Namespace .Values.kubeProxyConfigMap -}}
{{- index ($map.data | default dict) "config.conf" | default "" -}}
{{- else -}}
{{- include "vmapd.config" . -}}
{{- end -}}
{{- end -}}

{{/* The port of HOST:PORT, or a default: list ADDRESS DEFAULT. */}}
{{- define "vmapd.port" -}}
{{- regexFind ":[0-9]+$" (regexFind "^([^:]*|\\[.*\\]):[0-9]+$" (index . 0 | default "")) | trimPrefix ":" | default (index . 1) -}}
{{- end -}}

{{/* A probe of a path. The kubelet connects to the node's address, unless health is on loopback: list ADDRESS PATH. */}}
{{- define "vmapd.probe" -}}
{{- $loopback := regexFind "^(127\\.[0-9.]+|\\[?::1\\b)" (index . 0 | default "") | trimPrefix "[" -}}
httpGet: { {{- with $loopback }}host: {{ quote . }}, {{ end }}path: {{ index . 1 }}, port: healthz}
{{- end -}}

{{/* The data of the ConfigMap. */}}
{{- define "vmapd.files" -}}
{{- if not .Values.kubeProxyConfigMap }}
  config.conf: |
    {{- include "vmapd.config" . | nindent 4 }}
  kubeconfig.conf: |
    apiVersion: v1
    kind: Config
    clusters:
    - name: default
      cluster:
        server: {{ required "apiServer is required: https://HOST:PORT, an address that works without Services; or set kubeProxyConfigMap" .Values.apiServer }}
        certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    users:
    - name: default
      user:
        tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
    contexts:
    - name: default
      context: {cluster: default, user: default, namespace: default}
    current-context: default
{{- end }}
  # Settings that kube-proxy does not have.
  vmapd.yaml: |
    {{- mergeOverwrite (deepCopy .Values.vmapdConfig) (dict "apiVersion" "vmapd.io/v1alpha1" "kind" "VmapdConfiguration") | toYaml | nindent 4 }}
{{- end -}}

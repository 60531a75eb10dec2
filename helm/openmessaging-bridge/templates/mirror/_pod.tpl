{{- define "openmessaging-bridge.mirror.out" -}}
{{ .Values.mirror.out | default "/srv/mirror" }}
{{- end }}

{{- define "openmessaging-bridge.mirror.claim" -}}
{{- $own := printf "%s-mirror" (include "openmessaging-bridge.fullname" .) }}
{{- .Values.mirror.persistence.existingClaim | default $own }}
{{- end }}

{{/* The options of `run` and `once` that the values add. */}}
{{- define "openmessaging-bridge.mirror.args" -}}
{{- $conf := gt (int .Values.mirror.executors) 0 | ternary (include "openmessaging-bridge.mirror.executor-conf" . | fromYaml) dict }}
{{- range $name, $value := merge (deepCopy .Values.mirror.sparkConf) $conf }}
- {{ printf "--conf=%s=%s" $name $value | quote }}
{{- end }}
{{- range .Values.mirror.args }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/*
The container without arguments, ports and probes. Takes: root; backend, empty if it needs none; driver, whether it has
executors.
*/}}
{{- define "openmessaging-bridge.mirror.container" -}}
{{- $mirror := .root.Values.mirror -}}
name: oms-mirror
image: {{ include "oms-bridge.image" (dict "image" $mirror.image "version" .root.Chart.AppVersion) | quote }}
imagePullPolicy: {{ $mirror.image.pullPolicy }}
env:
  - {name: HOME, value: /tmp}
  - {name: SPARK_LOCAL_DIRS, value: /tmp}
  {{- with include "oms-bridge.backend.env" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- range $name, $value := omit (.root.Values.settings.tracing | default dict) "metrics" }}
  - {name: OMS_TRACING__{{ upper $name }}, value: {{ $value | quote }}}
  {{- end }}
  {{- with $mirror.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
securityContext:
  {{- include "oms-bridge.security" . | nindent 2 }}
resources:
  {{- toYaml $mirror.resources | nindent 2 }}
volumeMounts:
  - {name: oms-bridge-tmp, mountPath: /tmp}
  {{- if not $mirror.out }}
  - {name: oms-bridge-mirror, mountPath: /srv/mirror}
  {{- end }}
  {{- if .driver }}
  - {name: oms-bridge-executor, mountPath: /etc/oms-mirror, readOnly: true}
  {{- end }}
  {{- with include "oms-bridge.mounts" (dict "backend" .backend "callbacks" dict "tls" dict "mounts" .root.Values.mounts) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}

{{/*
The pod without its containers. Takes: root; backend; part, the values of the mirror; driver, whether it has executors.
*/}}
{{- define "openmessaging-bridge.mirror.pod" -}}
{{- include "openmessaging-bridge.pod" (merge (dict "token" .driver) .) }}
{{- with .driver | ternary (include "openmessaging-bridge.mirror.account" .root) .part.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ .part.terminationGracePeriodSeconds }}
volumes:
  - name: oms-bridge-tmp
    emptyDir:
      sizeLimit: {{ .part.scratch }}
  {{- if not .part.out }}
  - name: oms-bridge-mirror
    persistentVolumeClaim:
      claimName: {{ include "openmessaging-bridge.mirror.claim" .root }}
  {{- end }}
  {{- if .driver }}
  - name: oms-bridge-executor
    configMap:
      name: {{ include "openmessaging-bridge.mirror.driver" .root }}
  {{- end }}
  {{- with include "oms-bridge.mounted" (dict "backend" .backend "callbacks" dict "tls" dict "mounts" .root.Values.mounts) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The affinity of jobs to the running mirror: its node is the one that has mounted the volume. */}}
{{- define "openmessaging-bridge.mirror.beside" -}}
podAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "openmessaging-bridge.selector" (dict "root" . "component" "mirror") | nindent 10 }}
{{- end }}

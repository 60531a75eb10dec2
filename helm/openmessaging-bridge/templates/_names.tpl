{{- define "openmessaging-bridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* At most 36 characters: a CronJob's name may have 52, and the longest suffix is -mirror-compact. */}}
{{- define "openmessaging-bridge.fullname" -}}
{{- $name := include "openmessaging-bridge.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 36 | trimSuffix "-" }}
{{- end }}

{{/* Takes: root; component. */}}
{{- define "openmessaging-bridge.selector" -}}
app.kubernetes.io/name: {{ include "openmessaging-bridge.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "openmessaging-bridge.labels" -}}
{{ include "openmessaging-bridge.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The metadata of everything but pods. Takes: root; component; suffix, where the name has one. */}}
{{- define "openmessaging-bridge.metadata" -}}
name: {{ include "openmessaging-bridge.fullname" .root }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "openmessaging-bridge.labels" . | nindent 2 }}
{{- end }}

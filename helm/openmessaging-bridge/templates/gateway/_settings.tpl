{{- define "openmessaging-bridge.gateway.settings" -}}
{{- $name := include "openmessaging-bridge.fullname" . }}
{{- $inside := printf "%s.%s" $name .Release.Namespace }}
{{- $hosts := list $name $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) }}
{{- include "oms-bridge.settings" (dict "values" .Values "listen" .Values.address "hosts" $hosts) }}
{{- end }}

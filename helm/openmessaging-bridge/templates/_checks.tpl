{{/*
What is wrong with the values that a schema cannot say.
*/}}
{{- define "openmessaging-bridge.check" -}}
{{- include "oms-bridge.check" .Values -}}
{{- $memory := hasPrefix "memory:" .Values.backend.url -}}
{{- $alone := and (not .Values.gateway.autoscaling.enabled) (le (int .Values.gateway.replicas) 1) -}}
{{- if and $memory .Values.gateway.enabled (not $alone) -}}
{{- fail "memory:// keeps messages in one pod: set gateway.replicas to 1, without autoscaling" -}}
{{- end -}}
{{- if and $memory .Values.mirror.enabled -}}
{{- fail "mirror.enabled needs a broker; memory:// is mirrored beside its bridge, see docs/mirror.md" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not $memory) (not .Values.networkPolicy.brokers) -}}
{{- fail "networkPolicy.brokers: name the brokers, or nothing could be reached; or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- with .Values.gateway.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail "gateway.autoscaling.minReplicas is above maxReplicas" -}}
{{- end -}}
{{- end -}}
{{- end }}

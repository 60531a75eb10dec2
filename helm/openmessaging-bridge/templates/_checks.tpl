{{/*
Checks that a schema cannot express.
*/}}
{{- define "openmessaging-bridge.check" -}}
{{- include "oms-bridge.check" .Values -}}
{{- $memory := hasPrefix "memory:" .Values.backend.url -}}
{{- $alone := and (not .Values.gateway.autoscaling.enabled) (le (int .Values.gateway.replicas) 1) -}}
{{- if and $memory .Values.gateway.enabled (not $alone) -}}
{{- fail "memory:// keeps messages in one pod: set gateway.replicas to 1, without autoscaling" -}}
{{- end -}}
{{- if and $memory .Values.mirror.enabled -}}
{{- fail "mirror.enabled needs a broker; docs/mirror.md says how to mirror a bridge with memory://" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not $memory) (not .Values.networkPolicy.brokers) -}}
{{- fail "networkPolicy.brokers is empty, so no broker could be reached; name the brokers, or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- $inside := list (dict "podSelector" dict) -}}
{{- if and .Values.gateway.enabled .Values.networkPolicy.enabled (ne .Values.gateway.service.type "ClusterIP") (deepEqual .Values.networkPolicy.clients $inside) -}}
{{- fail "gateway.service.type is for clients outside the namespace, which networkPolicy.clients refuses; name them there, such as - ipBlock: {cidr: 198.51.100.0/24}" -}}
{{- end -}}
{{- if and .Values.mirror.enabled .Values.mirror.executors -}}
{{- if ne .Values.mirror.mode "run" -}}
{{- fail "mirror.executors needs mirror.mode run: the jobs of mode once have no fixed name by which executors find them" -}}
{{- end -}}
{{- if or (not (contains "://" .Values.mirror.out)) (hasPrefix "file:" .Values.mirror.out) -}}
{{- fail "mirror.executors needs an object store, such as mirror.out: s3a://bucket/mirror: executors do not have the mirror's volume" -}}
{{- end -}}
{{- if hasKey .Values.mirror.sparkConf "spark.master" -}}
{{- fail "mirror.executors sets spark.master: remove it from mirror.sparkConf" -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.kubernetes) -}}
{{- fail "networkPolicy.kubernetes is empty, so the mirror could not ask for executors; name the API server, or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- end -}}
{{- with .Values.gateway.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail "gateway.autoscaling.minReplicas is above maxReplicas" -}}
{{- end -}}
{{- end -}}
{{- end }}

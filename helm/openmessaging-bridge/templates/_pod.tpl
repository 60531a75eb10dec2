{{/*
The common part of the pods of gateway and mirror. Takes: root; part, the values of one of them; token, whether the pod
may use Kubernetes.
*/}}
{{- define "openmessaging-bridge.pod" -}}
automountServiceAccountToken: {{ .token | default false }}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with get $.part $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Labels and annotations of pods. Takes: root; component; part; annotations, of the chart's own. */}}
{{- define "openmessaging-bridge.pod-metadata" -}}
labels:
  {{- include "openmessaging-bridge.labels" . | nindent 2 }}
  {{- with .part.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with mergeOverwrite (deepCopy .part.podAnnotations) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

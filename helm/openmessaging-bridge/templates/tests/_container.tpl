{{- define "openmessaging-bridge.test.container" -}}
image: {{ include "oms-bridge.image" (dict "image" .Values.image "version" .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "oms-bridge.security" . | nindent 2 }}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 256Mi}
volumeMounts:
  - {name: messages, mountPath: /etc/messages, readOnly: true}
  {{- if .Values.tls.existingSecret }}
  - {name: oms-bridge-tls, mountPath: /run/secrets/oms-bridge/tls, readOnly: true}
  {{- end }}
{{- end }}

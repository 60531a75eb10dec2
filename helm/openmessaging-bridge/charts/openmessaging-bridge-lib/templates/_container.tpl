{{/*
The image's full name. Takes: image; version, the default tag.
*/}}
{{- define "oms-bridge.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .version }}
{{- end -}}
{{- end }}

{{/*
The container's security context: the restricted Pod Security profile, and a read-only root.
*/}}
{{- define "oms-bridge.security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/*
The variables that give the backend's URL. Takes values.
*/}}
{{- define "oms-bridge.backend.env" -}}
{{- if .backend.existingSecret -}}
- name: OMS_BACKEND_FILE
  value: /run/secrets/oms-bridge/backend/{{ .backend.key }}
{{- else if .backend.url -}}
- name: OMS_BACKEND
  value: {{ .backend.url | quote }}
{{- end -}}
{{- end }}

{{/*
A container that serves, all but its name. Takes: values; version; resources.
*/}}
{{- define "oms-bridge.container" -}}
image: {{ include "oms-bridge.image" (dict "image" .values.image "version" .version) | quote }}
imagePullPolicy: {{ .values.image.pullPolicy }}
args: [serve, --config, /etc/oms-bridge/bridge.yaml]
env:
  {{- include "oms-bridge.backend.env" .values | nindent 2 }}
securityContext:
  {{- include "oms-bridge.security" . | nindent 2 }}
resources:
  {{- toYaml .resources | nindent 2 }}
# /livez, since a bridge must not be restarted when its broker is down: it keeps retrying.
startupProbe:
  httpGet: {path: /livez, port: oms-management}
  # It listens after about a second; earlier probes would only be warnings among the pod's events.
  initialDelaySeconds: 2
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: oms-management}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
volumeMounts:
  - {name: oms-bridge-config, mountPath: /etc/oms-bridge, readOnly: true}
  - {name: oms-bridge-tmp, mountPath: /tmp}
  {{- with include "oms-bridge.mounts" .values | trim }}
  {{- . | nindent 2 }}
  {{- end }}
{{- end }}

{{/*
Whether clients are sent to the pod. Takes values.
*/}}
{{- define "oms-bridge.readiness" -}}
readinessProbe:
  httpGet:
    path: {{ .readiness.followBroker | ternary "/readyz" (printf "/startedz?wait=%d" (int .readiness.waitSeconds)) }}
    port: oms-management
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{/*
The four templates for another chart. Each takes: context, its `$`; bridge, the values under the dependency's alias.
*/}}

{{/* An entry of initContainers: started before the containers, stopped after them, also in a Job. */}}
{{- define "oms-bridge.sidecar" -}}
{{- include "oms-bridge.check" .bridge -}}
- name: oms-bridge
  restartPolicy: Always
  ports:
    - {name: oms-management, containerPort: {{ .bridge.ports.management }}}
  {{- include "oms-bridge.container" (dict "values" .bridge "version" .bridge.image.tag "resources" .bridge.resources) | nindent 2 }}
  {{- include "oms-bridge.readiness" .bridge | nindent 2 }}
{{- end }}

{{/* Entries of volumes. */}}
{{- define "oms-bridge.sidecar.volumes" -}}
{{- include "oms-bridge.volumes" (dict "values" .bridge "config" (include "oms-bridge.sidecar.config-name" .)) }}
{{- end }}

{{/* The ConfigMap that those volumes name; one serves all pods of the release. */}}
{{- define "oms-bridge.sidecar.config" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "oms-bridge.sidecar.config-name" . }}
data:
  bridge.yaml: |
    {{- include "oms-bridge.sidecar.settings" . | nindent 4 }}
{{- end }}

{{/* Annotations of the pod: it is replaced when the settings change. */}}
{{- define "oms-bridge.sidecar.annotations" -}}
openmessaging-bridge/settings: {{ include "oms-bridge.sidecar.settings" . | sha256sum }}
{{- end }}

{{/* The grace period of the pod. Takes also: application, the seconds that its own containers need to end. */}}
{{- define "oms-bridge.sidecar.grace" -}}
{{- add .application (include "oms-bridge.stop-seconds" .bridge) -}}
{{- end }}

{{- define "oms-bridge.sidecar.settings" -}}
{{- include "oms-bridge.settings" (dict "values" .bridge "listen" "127.0.0.1") }}
{{- end }}

{{- define "oms-bridge.sidecar.config-name" -}}
{{ .context.Release.Name | trunc 52 | trimSuffix "-" }}-oms-bridge
{{- end }}

{{/*
The container's mounts of the Secrets and ConfigMaps that the values name. Takes values.
*/}}
{{- define "oms-bridge.mounts" -}}
{{- if .backend.existingSecret }}
- {name: oms-bridge-backend, mountPath: /run/secrets/oms-bridge/backend, readOnly: true}
{{- end }}
{{- if .callbacks.existingSecret }}
- {name: oms-bridge-callbacks, mountPath: /run/secrets/oms-bridge/callbacks, readOnly: true}
{{- end }}
{{- if .tls.existingSecret }}
- {name: oms-bridge-tls, mountPath: /run/secrets/oms-bridge/tls, readOnly: true}
{{- end }}
{{- range .mounts }}
- {name: oms-bridge-{{ .name }}, mountPath: {{ .mountPath }}, readOnly: true}
{{- end }}
{{- end }}

{{/*
The volumes of those mounts, with only the needed keys of each Secret. Takes values.
*/}}
{{- define "oms-bridge.mounted" -}}
{{- with .backend }}
{{- if .existingSecret }}
- name: oms-bridge-backend
  secret:
    secretName: {{ .existingSecret }}
    items: [{key: {{ .key }}, path: {{ .key }}}]
{{- end }}
{{- end }}
{{- with .callbacks }}
{{- if .existingSecret }}
- name: oms-bridge-callbacks
  secret:
    secretName: {{ .existingSecret }}
    items: [{key: {{ .key }}, path: {{ .key }}}]
{{- end }}
{{- end }}
{{- with .tls.existingSecret }}
- name: oms-bridge-tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- range .mounts }}
- name: oms-bridge-{{ .name }}
  {{- if .secret }}
  secret:
    secretName: {{ .secret }}
  {{- else }}
  configMap:
    name: {{ .configMap }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
All volumes of a bridge that serves. Takes: values; config, the name of the ConfigMap with its settings.
*/}}
{{- define "oms-bridge.volumes" -}}
- name: oms-bridge-config
  configMap:
    name: {{ .config }}
- name: oms-bridge-tmp
  emptyDir:
    sizeLimit: 64Mi
{{- include "oms-bridge.mounted" .values }}
{{- end }}

{{/*
The settings file. Takes: values; listen, the host of the data port; hosts, the names that clients use.
*/}}
{{- define "oms-bridge.settings" -}}
{{- $own := dict
  "listen" (printf "%s:%v" .listen .values.ports.data)
  "management" (printf "%s:%v" .values.address .values.ports.management) }}
{{- with .values.tls.existingSecret }}
{{- $tls := dict "certificate" "/run/secrets/oms-bridge/tls/tls.crt" "key" "/run/secrets/oms-bridge/tls/tls.key" }}
{{- if $.values.tls.clientCa }}
{{- $_ := set $tls "client_ca" "/run/secrets/oms-bridge/tls/ca.crt" }}
{{- end }}
{{- $_ := set $own "tls" $tls }}
{{- end }}
{{- if .values.callbacks.existingSecret }}
{{- $_ := set $own "callbacks" (dict "secrets_file" (printf "/run/secrets/oms-bridge/callbacks/%s" .values.callbacks.key)) }}
{{- end }}
{{- with .hosts }}
{{- $named := dig "http" "hosts" list $.values.settings }}
{{- $_ := set $own "http" (dict "hosts" (concat . $named | uniq)) }}
{{- end }}
{{- mergeOverwrite (deepCopy .values.settings) $own | toYaml }}
{{- end }}

{{/*
Maximum seconds that the bridge needs to stop: its drain, and the seconds that docs/operations.md adds. Takes values.
*/}}
{{- define "oms-bridge.stop-seconds" -}}
{{- $drain := dig "drain" 20000 .settings | int64 -}}
{{- add 10 (div (add $drain 999) 1000) -}}
{{- end }}

{{/*
Checks that a schema cannot express. Takes values.
*/}}
{{- define "oms-bridge.check" -}}
{{- if and .backend.existingSecret .backend.url -}}
{{- fail "backend.existingSecret and backend.url are both set; keep one of them" -}}
{{- end -}}
{{- if not (or .backend.existingSecret .backend.url) -}}
{{- fail "backend: name the Secret with the backend's URL in backend.existingSecret, or give backend.url" -}}
{{- end -}}
{{- if and (dig "callbacks" "targets" "" .settings) (not .callbacks.existingSecret) -}}
{{- fail "settings.callbacks.targets needs callbacks.existingSecret, to sign with" -}}
{{- end -}}
{{- if and .tls.clientCa (not .tls.existingSecret) -}}
{{- fail "tls.clientCa needs tls.existingSecret" -}}
{{- end -}}
{{- end }}

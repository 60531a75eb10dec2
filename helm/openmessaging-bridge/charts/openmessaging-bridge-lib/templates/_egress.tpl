{{/*
Egress of a NetworkPolicy: the cluster's DNS, and lists of {to, ports}. Takes: dns, a list of peers; rules.
*/}}
{{- define "oms-bridge.egress" -}}
- to:
    {{- toYaml .dns | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- range .rules }}
- to:
    {{- toYaml .to | nindent 4 }}
  ports:
    {{- range .ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- end }}

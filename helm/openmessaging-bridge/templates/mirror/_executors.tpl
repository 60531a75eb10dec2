{{/* The Service by which executors find their driver. */}}
{{- define "openmessaging-bridge.mirror.driver" -}}
{{ include "openmessaging-bridge.fullname" . }}-mirror-driver
{{- end }}

{{/* Who may ask Kubernetes for executors. */}}
{{- define "openmessaging-bridge.mirror.account" -}}
{{- .Values.mirror.serviceAccountName | default (include "openmessaging-bridge.mirror.driver" .) }}
{{- end }}

{{/* Spark's settings for executors in pods of their own. `sparkConf` takes precedence. */}}
{{- define "openmessaging-bridge.mirror.executor-conf" -}}
spark.master: k8s://https://kubernetes.default.svc
spark.executor.instances: {{ .Values.mirror.executors | quote }}
spark.executor.cores: {{ .Values.mirror.executor.cores | quote }}
spark.executor.memory: {{ .Values.mirror.executor.memory | quote }}
# Beside the heap there are Python's workers.
spark.executor.memoryOverheadFactor: "0.4"
spark.driver.host: {{ include "openmessaging-bridge.mirror.driver" . }}.{{ .Release.Namespace }}.svc
spark.driver.bindAddress: 0.0.0.0
spark.driver.port: "7078"
spark.blockManager.port: "7079"
# With the default, 1s, a pod that is not ready yet is an error with a stack trace in the log.
spark.kubernetes.allocation.driver.readinessTimeout: 60s
spark.kubernetes.namespace: {{ .Release.Namespace }}
# The owner of the executors: Kubernetes deletes them with this pod.
spark.kubernetes.driver.pod.name: {{ include "openmessaging-bridge.fullname" . }}-mirror-0
spark.kubernetes.container.image: {{ include "oms-bridge.image" (dict "image" .Values.mirror.image "version" .Chart.AppVersion) }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.mirror.image.pullPolicy }}
spark.kubernetes.executor.podTemplateFile: /etc/oms-mirror/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: oms-mirror
# Executors get the backend's URL, and a driver runs what its executors send.
spark.authenticate: "true"
spark.network.crypto.enabled: "true"
{{- end }}

{{/* The pod of an executor, to which Spark adds image, resources and variables, and the argument `executor`. */}}
{{- define "openmessaging-bridge.mirror.executor" -}}
{{- $mirror := .Values.mirror -}}
{{- $mounts := dict "backend" dict "callbacks" dict "tls" dict "mounts" .Values.mounts -}}
apiVersion: v1
kind: Pod
metadata:
  {{- include "openmessaging-bridge.pod-metadata" (dict "root" . "component" "mirror-executor" "part" $mirror) | nindent 2 }}
spec:
  {{- include "openmessaging-bridge.pod" (dict "root" . "part" $mirror) | nindent 2 }}
  {{- with $mirror.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  volumes:
    # A name that Spark knows: it puts its own scratch files there.
    - name: spark-local-dir-1
      emptyDir:
        sizeLimit: {{ $mirror.scratch }}
    {{- with include "oms-bridge.mounted" $mounts | trim }}
    {{- . | nindent 4 }}
    {{- end }}
  containers:
    - name: oms-mirror
      args: [mirror]
      env:
        - {name: HOME, value: /tmp}
        {{- with $mirror.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      securityContext:
        {{- include "oms-bridge.security" . | nindent 8 }}
      volumeMounts:
        - {name: spark-local-dir-1, mountPath: /tmp}
        {{- with include "oms-bridge.mounts" $mounts | trim }}
        {{- . | nindent 8 }}
        {{- end }}
{{- end }}

{{/* The name of a component: the release, and the component. */}}
{{- define "sereno.name" -}}
{{- printf "%s-%s" .root.Release.Name .component | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels by which pods are selected. They never change. */}}
{{- define "sereno.selector" -}}
app.kubernetes.io/name: sereno
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "sereno.labels" -}}
{{ include "sereno.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- define "sereno.image" -}}
{{- $image := .root.Values.image -}}
{{- $repository := required "image.repository is required: your code with sereno, see deploy/Dockerfile" $image.repository -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ required "image.tag or image.digest is required" $image.tag }}
{{- end -}}
{{- end -}}

{{/* What every pod has: no rights, no token of Kubernetes, and its place. */}}
{{- define "sereno.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
serviceAccountName: {{ .root.Values.serviceAccountName }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65534
  runAsGroup: 65534
  fsGroup: 65534
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Replicas on different nodes, as far as there are some. */}}
{{- define "sereno.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "sereno.selector" . | nindent 8 }}
{{- end -}}

{{/* What every container has. */}}
{{- define "sereno.container" -}}
image: {{ include "sereno.image" . }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: ["ALL"]}
resources:
  {{- toYaml .resources | nindent 2 }}
{{- end -}}

{{/* The variables of every process: its login, its application, and your settings. */}}
{{- define "sereno.env" -}}
- name: SERENO_DATABASE_URL
  valueFrom: {secretKeyRef: {name: {{ .database.secret }}, key: {{ .database.key }}}}
{{- with .root.Values.app }}
- {name: SERENO_APP, value: {{ . | quote }}}
{{- end }}
{{- range $name, $value := .root.Values.settings }}
- {name: SERENO_{{ upper $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sereno.env.signing" -}}
- name: SERENO_SECRET
  valueFrom: {secretKeyRef: {name: {{ .root.Values.signingSecret.secret }}, key: {{ .root.Values.signingSecret.key }}}}
{{- end -}}

{{/* Of processes with a health port. */}}
{{- define "sereno.env.health" -}}
- {name: SERENO_HEALTH_HOST, value: "0.0.0.0"}
- {name: SERENO_HEALTH_PORT, value: "7374"}
{{- if .root.Values.metricsToken.secret }}
{{ include "sereno.env.metrics" . }}
{{- end }}
{{- end -}}

{{- define "sereno.env.metrics" -}}
- name: SERENO_METRICS_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .root.Values.metricsToken.secret }}, key: {{ .root.Values.metricsToken.key }}}}
{{- end -}}

{{/* Ports and probes of processes with a health port; the application may take a minute to import. */}}
{{- define "sereno.health" -}}
ports: [{containerPort: 7374, name: health}]
startupProbe: {httpGet: {path: /livez, port: health}, periodSeconds: 2, failureThreshold: 30}
livenessProbe: {httpGet: {path: /livez, port: health}, periodSeconds: 10, timeoutSeconds: 5}
readinessProbe: {httpGet: {path: /readyz, port: health}, periodSeconds: 5, timeoutSeconds: 5}
{{- end -}}

{{/* Pods of this namespace and of Prometheus may read health and metrics; nothing else connects to these pods. */}}
{{- define "sereno.health.ingress" -}}
- from:
    - podSelector: {}
    {{- with .root.Values.networkPolicy.monitoringNamespace }}
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ . }}}}
    {{- end }}
  ports: [{port: health, protocol: TCP}]
{{- end -}}

{{/* Name servers, PostgreSQL and what else is allowed. */}}
{{- define "sereno.egress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
    {{- range .root.Values.networkPolicy.egressPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{- define "sereno.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "sereno.name" . }}
  labels:
    {{- include "sereno.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "sereno.selector" . | nindent 6 }}
{{- end -}}

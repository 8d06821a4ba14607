{{/* Names are fixed: the binary looks for them, and allocations are the cluster's, so there is one release. */}}
{{- define "name" -}}ip-address-controller{{- end }}

{{- define "labels" -}}
app.kubernetes.io/name: {{ include "name" . }}
{{- end }}

{{/* Labels by which Deployments, Services and budgets find their pods: they can never change. */}}
{{- define "selector" -}}
app.kubernetes.io/name: ip-address-controller
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "priorityClass" -}}
{{- if .Values.priorityClass.create }}
priorityClassName: ip-address-controller
{{- else if .Values.priorityClass.name }}
priorityClassName: {{ .Values.priorityClass.name }}
{{- end }}
{{- end }}

{{- define "probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "spread" -}}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "selector" . | nindent 6 }}
{{- end }}

{{- define "budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "selector" .component | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "selector" .component | nindent 6 }}
{{- end }}

{{/* Rights of a hook's pod: there before it, gone after it. */}}
{{- define "hookRights" -}}
helm.sh/hook: {{ . }}
helm.sh/hook-weight: "-10"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

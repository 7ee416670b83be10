{{- define "pod-reloader.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "pod-reloader.fullname" -}}
{{- $name := include "pod-reloader.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "pod-reloader.selectorLabels" -}}
app.kubernetes.io/name: {{ include "pod-reloader.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "pod-reloader.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "pod-reloader.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "pod-reloader.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "pod-reloader.fullname" .) -}}
{{- end -}}

{{- /* The operator's name to the apiserver. */ -}}
{{- define "pod-reloader.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "pod-reloader.serviceAccountName" . }}
{{- end -}}

{{- /* Where the webhook's certificate is: a mounted Secret of cert-manager or of the user, or one that the operator keeps. */ -}}
{{- define "pod-reloader.mountedTlsSecret" -}}
{{- if .Values.webhook.certManager.enabled -}}
{{ include "pod-reloader.fullname" . }}-tls-managed
{{- else -}}
{{ .Values.webhook.existingSecret }}
{{- end -}}
{{- end -}}

{{- define "pod-reloader.ownTlsSecret" -}}
{{ include "pod-reloader.fullname" . }}-tls
{{- end -}}

{{- define "pod-reloader.hashKeysSecret" -}}
{{ .Values.hashKeysSecret | default (printf "%s-hash-keys" (include "pod-reloader.fullname" .)) }}
{{- end -}}

{{- /* The apiVersion of the MutatingAdmissionPolicy, empty where none is to be rendered. */ -}}
{{- define "pod-reloader.policyApiVersion" -}}
{{- $enabled := toString .Values.policy.enabled -}}
{{- $group := "admissionregistration.k8s.io" -}}
{{- if eq $enabled "true" -}}
{{ $group }}/v1
{{- else if eq $enabled "auto" -}}
{{- range tuple "v1" "v1beta1" -}}
{{- if $.Capabilities.APIVersions.Has (printf "%s/%s/MutatingAdmissionPolicy" $group .) -}}
{{ $group }}/{{ . }}
{{- break -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The scope, for webhook and policies alike; the operator is given the same by its flags. */ -}}
{{- define "pod-reloader.scope" -}}
namespaceSelector:
  {{- with .Values.webhook.namespaceSelector.matchLabels }}
  matchLabels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ .Release.Namespace | quote }}]
    {{- with .Values.watch.namespaces }}
    - key: kubernetes.io/metadata.name
      operator: In
      values:
        {{- toYaml . | nindent 8 }}
    {{- end }}
    {{- with .Values.webhook.namespaceSelector.matchExpressions }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
objectSelector:
  {{- with .Values.webhook.objectSelector.matchLabels }}
  matchLabels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  matchExpressions:
    - key: pod-reloader.cs.sap.com/ignored
      operator: NotIn
      values: ["true"]
    - key: pod-reloader.cs.sap.com/disabled
      operator: NotIn
      values: ["true"]
    {{- with .Values.webhook.objectSelector.matchExpressions }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- /* A label selector as a flag takes it, empty where it selects everything. */ -}}
{{- define "pod-reloader.selectorFlag" -}}
{{- if or .matchLabels .matchExpressions -}}
{{- $selector := dict -}}
{{- with .matchLabels }}{{ $_ := set $selector "matchLabels" . }}{{ end -}}
{{- with .matchExpressions }}{{ $_ := set $selector "matchExpressions" . }}{{ end -}}
{{- toJson $selector -}}
{{- end -}}
{{- end -}}

{{- /* The workloads, for webhook and policies alike. */ -}}
{{- define "pod-reloader.workloads" -}}
apiGroups: [apps]
apiVersions: [v1]
resources: [deployments, statefulsets, daemonsets]
scope: Namespaced
{{- end -}}

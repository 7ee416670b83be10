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

{{- /* The namespace of the operator and of all that belongs to it. */ -}}
{{- define "pod-reloader.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- /* The namespace of what `helm test` changes. */ -}}
{{- define "pod-reloader.testNamespace" -}}
{{- .Values.tests.namespace | default (first (.Values.watch.namespaces | default list)) | default "default" -}}
{{- end -}}

{{- /* The process: "controller", which answers reviews and restarts workloads, or "writer", which writes Secrets and
custom resources. Templates for the writer get a context that says so. */ -}}
{{- define "pod-reloader.part" -}}
{{- .Part | default "controller" -}}
{{- end -}}

{{- /* The name of its Deployment and of what belongs to that. */ -}}
{{- define "pod-reloader.partName" -}}
{{- if eq (include "pod-reloader.part" .) "writer" -}}
{{ include "pod-reloader.fullname" . | trunc 56 | trimSuffix "-" }}-writer
{{- else -}}
{{ include "pod-reloader.fullname" . }}
{{- end -}}
{{- end -}}

{{- /* The name of the Service with its metrics: that of a Service has at most 63 characters. */ -}}
{{- define "pod-reloader.metricsService" -}}
{{ include "pod-reloader.fullname" . | trunc 48 | trimSuffix "-" }}{{ if eq (include "pod-reloader.part" .) "writer" }}-writer{{ end }}-metrics
{{- end -}}

{{- /* The controllers that it runs, empty for all that are switched on. */ -}}
{{- define "pod-reloader.controllers" -}}
{{- if include "pod-reloader.hasWriter" . -}}
{{- eq (include "pod-reloader.part" .) "writer" | ternary "sync,bind" "restart,keep" -}}
{{- end -}}
{{- end -}}

{{- /* The resources of pod-reloader itself whose features are on, in JSON. */ -}}
{{- define "pod-reloader.ownResources" -}}
{{- $items := list -}}
{{- if .Values.sync.enabled }}{{ $items = append $items "clusterconfigsyncs" }}{{ end -}}
{{- if (include "pod-reloader.boundKinds" . | fromJson).items }}{{ $items = append $items "fieldbindings" }}{{ end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{- /* "true" if any is on: then there is a writer, which serves them. Otherwise empty. */ -}}
{{- define "pod-reloader.hasWriter" -}}
{{- if (include "pod-reloader.ownResources" . | fromJson).items -}}true{{- end -}}
{{- end -}}

{{- define "pod-reloader.selectorLabels" -}}
app.kubernetes.io/name: {{ include "pod-reloader.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: {{ include "pod-reloader.part" . }}
{{- end -}}

{{- /* The labels of an object. */ -}}
{{- define "pod-reloader.labels" -}}
{{ include "pod-reloader.labelsAnd" (list . dict) }}
{{- end -}}

{{- /* The labels of an object, and those that a value has for this object alone. */ -}}
{{- define "pod-reloader.labelsAnd" -}}
{{- $root := first . -}}
{{- with $root -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "pod-reloader.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- with include "pod-reloader.ownLabels" . }}
{{ . }}
{{- end }}
{{- end -}}

{{- /* The labels for one object, and those for all objects that it does not set otherwise; empty without any. A label
that is null is not set. An empty one is, which `merge` would not heed. */ -}}
{{- define "pod-reloader.ownLabels" -}}
{{- $labels := dict -}}
{{- range list (first .).Values.commonLabels (last .) -}}
{{- range $key, $value := . | default dict -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $labels $key $value }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with $labels -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- /* The image of all pods, from the registry that all charts of a parent chart use, if there is one. */ -}}
{{- define "pod-reloader.image" -}}
{{- $repository := required "image.repository is required, because no image is published yet: build one with `make image`, push it to a registry of yours with `make push`, and name it with --set image.repository=REGISTRY/NAME (docs/image.md)" .Values.image.repository -}}
{{- with (.Values.global | default dict).imageRegistry -}}
{{- /* The first part names a registry if it has a dot or a port. */ -}}
{{- $name := regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "" -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) $name -}}
{{- end -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{- /* The names of the pull secrets of all pods, as a field of a pod; empty without any. A global one is often just a
name, or has fields for other charts. */ -}}
{{- define "pod-reloader.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) (pick (kindIs "map" . | ternary . dict) "name")) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* Fields that have the names of values, in YAML: those that are set. */ -}}
{{- define "pod-reloader.fields" -}}
{{- $set := dict -}}
{{- range $name := rest . -}}
{{- with get (first $) $name }}{{ $_ := set $set $name . }}{{ end -}}
{{- end -}}
{{- with $set }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- /* The ports of both processes. */ -}}
{{- define "pod-reloader.metricsPort" -}}
{{ (.Values.ports | default dict).metrics | default 8080 | int }}
{{- end -}}

{{- define "pod-reloader.probesPort" -}}
{{ (.Values.ports | default dict).probes | default 8081 | int }}
{{- end -}}

{{- define "pod-reloader.serviceAccountName" -}}
{{- $account := eq (include "pod-reloader.part" .) "writer" | ternary .Values.writer.serviceAccount .Values.serviceAccount -}}
{{- $account.name | default (include "pod-reloader.partName" .) -}}
{{- end -}}

{{- /* Its name to the apiserver. */ -}}
{{- define "pod-reloader.username" -}}
system:serviceaccount:{{ include "pod-reloader.namespace" . }}:{{ include "pod-reloader.serviceAccountName" . }}
{{- end -}}

{{- define "pod-reloader.usernameOfWriter" -}}
{{- include "pod-reloader.username" (merge (dict "Part" "writer") .) -}}
{{- end -}}

{{- /* Where the webhook's certificate is: a mounted Secret of cert-manager or of the user, or one that the operator keeps. */ -}}
{{- define "pod-reloader.mountedTlsSecret" -}}
{{- if .Values.webhook.certManager.enabled -}}
{{ include "pod-reloader.fullname" . }}-tls-managed
{{- else -}}
{{ .Values.webhook.existingSecret }}
{{- end -}}
{{- end -}}

{{- /* The common name of cert-manager's CA: X.509 allows 64 bytes. */ -}}
{{- define "pod-reloader.caCommonName" -}}
{{- $fullname := include "pod-reloader.fullname" . -}}
{{- if gt (len $fullname) 61 -}}
{{- $fullname = printf "%s-%s" (trunc 52 $fullname) (sha256sum $fullname | trunc 8) -}}
{{- end -}}
{{ $fullname }}-ca
{{- end -}}

{{- define "pod-reloader.ownTlsSecret" -}}
{{ include "pod-reloader.fullname" . }}-tls
{{- end -}}

{{- /* The Secrets that the operator creates, with their types, in JSON. */ -}}
{{- define "pod-reloader.createdSecrets" -}}
{{- $secrets := dict -}}
{{- if not .Values.hashKeysSecret -}}
{{- $_ := set $secrets (include "pod-reloader.hashKeysSecret" .) "Opaque" -}}
{{- end -}}
{{- if not (include "pod-reloader.mountedTlsSecret" .) -}}
{{- $_ := set $secrets (include "pod-reloader.ownTlsSecret" .) "kubernetes.io/tls" -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end -}}

{{- /* Whether the loop runs, whether it also writes, and whether it runs CronJobs: "true", or empty. */ -}}
{{- define "pod-reloader.reconciles" -}}
{{- if ne (toString .Values.reconcile) "none" -}}true{{- end -}}
{{- end -}}

{{- define "pod-reloader.restarts" -}}
{{- if eq (toString .Values.reconcile) "restart" -}}true{{- end -}}
{{- end -}}

{{- /* Whether ConfigMaps come back that are deleted in use: "true", or empty. */ -}}
{{- define "pod-reloader.keeps" -}}
{{- if .Values.protect.enabled -}}{{- include "pod-reloader.restarts" . -}}{{- end -}}
{{- end -}}

{{- /* Whether pods of StatefulSets are deleted that are in the way: "true", or empty. */ -}}
{{- define "pod-reloader.unsticks" -}}
{{- if .Values.unstick.enabled -}}{{- include "pod-reloader.restarts" . -}}{{- end -}}
{{- end -}}

{{- /* Whether pods are asked to reload: "true", or empty. */ -}}
{{- define "pod-reloader.reloads" -}}
{{- if .Values.httpReload.enabled -}}{{- include "pod-reloader.restarts" . -}}{{- end -}}
{{- end -}}

{{- define "pod-reloader.runsCronJobs" -}}
{{- if and .Values.runCronJobsOnChange (include "pod-reloader.restarts" .) -}}
{{- range (include "pod-reloader.customResources" . | fromJson).items -}}
{{- if and (eq .group "batch") (eq .kind "CronJob") -}}true{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Whether annotations of Namespaces are read: "true", or empty. The value was a boolean before it had `enabled`. Other
templates are rendered before the one that refuses a boolean, and must not fail with a message of their own. */ -}}
{{- define "pod-reloader.readsNamespaces" -}}
{{- if kindIs "map" .Values.namespaceAnnotations -}}
{{- if .Values.namespaceAnnotations.enabled -}}true{{- end -}}
{{- end -}}
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

{{- /* The beginning of an admission policy or a binding, of this kind and name. */ -}}
{{- define "pod-reloader.policyHead" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
apiVersion: {{ if hasPrefix "Mutating" $kind }}{{ include "pod-reloader.policyApiVersion" $root }}{{ else }}admissionregistration.k8s.io/v1{{ end }}
kind: {{ $kind }}
metadata:
  name: {{ index . 2 }}
  labels:
    {{- include "pod-reloader.labels" $root | nindent 4 }}
{{- end -}}

{{- /* The binding of an admission policy of this kind and name, to all that the policy matches. With "stays" after these,
it stays when the release goes. */ -}}
{{- define "pod-reloader.policyBinding" -}}
{{- $kind := index . 1 -}}
{{- $name := index . 2 -}}
{{ include "pod-reloader.policyHead" (list (first .) (printf "%sBinding" $kind) $name) }}
{{- if and (eq (len .) 4) (eq (last .) "stays") }}
  annotations:
    {{- include "pod-reloader.stays" (first .) | nindent 4 }}
{{- end }}
spec:
  policyName: {{ $name }}
  {{- if hasPrefix "Validating" $kind }}
  validationActions: [Deny]
  {{- end }}
{{- end -}}

{{- /* The beginning of a policy with this name, about the authors of a custom resource of pod-reloader with this resource
and scope. The rules that follow ask them for the rights that they would get by it. The policy stays as long as the CRD. */ -}}
{{- define "pod-reloader.authorPolicy" -}}
{{- $root := index . 0 -}}
{{- $resource := index . 2 -}}
{{ include "pod-reloader.policyHead" (list $root "ValidatingAdmissionPolicy" (index . 1)) }}
  annotations:
    {{- include "pod-reloader.stays" $root | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Equivalent
    resourceRules:
      - operations: [CREATE, UPDATE]
        apiGroups: [pod-reloader.github.io]
        apiVersions: ["*"]
        resources: [{{ $resource }}, {{ $resource }}/*]
        scope: {{ index . 3 }}
  matchConditions:
    # The garbage collector would delete it for the owners that it has, and what it owns, if anything.
    - name: spec-or-deciding-metadata-is-written
      expression: >-
        request.operation == 'CREATE' || object.spec != oldObject.spec ||
        {{- include "pod-reloader.decidingMetadataChanges" $root | nindent 8 }}
{{- end -}}

{{- /* In CEL, after a list of parts: whether no other field of them changes. A part is a list: as it is, as it was, and the
fields that can change. */ -}}
{{- define "pod-reloader.nothingElseChanges" -}}
.all(part, part[0].all(field, field in part[2] || (field in part[1] && part[0][field] == part[1][field])) &&
part[1].all(field, field in part[2] || field in part[0]))
{{- end -}}

{{- /* How pods are pinned: "policy" where the cluster serves all that it takes, "webhook", or empty. */ -}}
{{- define "pod-reloader.pinsBy" -}}
{{- if .Values.pin.enabled -}}
{{- hasSuffix "/v1" (include "pod-reloader.policyApiVersion" .) | ternary "policy" "webhook" -}}
{{- end -}}
{{- end -}}

{{- /* In CEL: whether a pod has pins. */ -}}
{{- define "pod-reloader.isPinned" -}}
object.metadata.?annotations[?'pod-reloader.cs.sap.com/pins'].orValue('') != ''
{{- end -}}

{{- /* The scope, for webhook and policies alike; the operator is given the same by its flags. */ -}}
{{- define "pod-reloader.scope" -}}
{{ include "pod-reloader.namespaceScope" . }}
objectSelector:
  {{- with (.Values.watch.workloadSelector | default dict).matchLabels }}
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
    {{- with (.Values.watch.workloadSelector | default dict).matchExpressions }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- /* Its part that is about namespaces. */ -}}
{{- define "pod-reloader.namespaceScope" -}}
namespaceSelector:
  {{- with (.Values.watch.namespaceSelector | default dict).matchLabels }}
  matchLabels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: [kube-system, {{ include "pod-reloader.namespace" . | quote }}{{ range .Values.ignoreNamespaces }}, {{ . | quote }}{{ end }}]
    {{- with .Values.watch.namespaces }}
    - key: kubernetes.io/metadata.name
      operator: In
      values:
        {{- toYaml . | nindent 8 }}
    {{- end }}
    {{- with (.Values.watch.namespaceSelector | default dict).matchExpressions }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- /* Whose annotations are read, with commas between them. */ -}}
{{- define "pod-reloader.dialects" -}}
{{- .Values.dialects | default (list "pod-reloader") | join "," -}}
{{- end -}}

{{- /* In CEL: whether a workload has any key of a dialect that is read, in the right place or in a wrong one, about which it
gets a warning. What we write ourselves does not count: all managed workloads have it. */ -}}
{{- define "pod-reloader.hasOurAnnotations" -}}
{{- $dialects := include "pod-reloader.dialects" . | splitList "," -}}
{{- $ofDialect := dict
  "pod-reloader" "key.startsWith('pod-reloader.cs.sap.com/')"
  "stakater" "key.contains('reloader.stakater.com/')"
  "wave" "key.startsWith('wave.pusher.com/')"
  "trigger-controller" "key.startsWith('trigger.k8s.io/')"
  "fabric8" "key.startsWith('configmap.fabric8.io/')"
  "stackable" "key == 'restarter.stackable.tech/enabled'"
  "infisical" "key == 'secrets.infisical.com/auto-reload'"
  "onepassword" "key == 'operator.1password.io/auto-restart'"
-}}
{{- $isOurs := "(key.startsWith('pod-reloader.cs.sap.com/') &&\n!(key in ['pod-reloader.cs.sap.com/%s', 'pod-reloader.cs.sap.com/%s']))" -}}
{{- $asLabel := merge (dict "pod-reloader" (printf $isOurs "ignored" "disabled")) $ofDialect -}}
{{- $inTemplate := merge (dict "pod-reloader" (printf $isOurs "config-hash" "pins")) $ofDialect -}}
{{- $any := list -}}
{{- $keys := list -}}
{{- $labels := list -}}
{{- $keysInTemplate := list -}}
{{- range $dialects -}}
{{- with get $ofDialect . }}{{ $keys = append $keys . }}{{ end -}}
{{- with get $asLabel . }}{{ $labels = append $labels . }}{{ end -}}
{{- with get $inTemplate . }}{{ $keysInTemplate = append $keysInTemplate . }}{{ end -}}
{{- end -}}
{{- with $keys -}}
{{- $any = append $any (printf "has(object.metadata.annotations) &&\nobject.metadata.annotations.exists(key, %s)" (join " ||\n" .)) -}}
{{- end -}}
{{- with $labels -}}
{{- $any = append $any (printf "has(object.metadata.labels) &&\nobject.metadata.labels.exists(key, %s)" (join " ||\n" .)) -}}
{{- end -}}
{{- range $map, $inMap := dict "annotations" $keysInTemplate "labels" $keys -}}
{{- if $inMap -}}
{{- range $place, $guard := include "pod-reloader.inTemplates" (list $ $map) | fromJson -}}
{{- $any = append $any (printf "%s%s.exists(key, %s)" $guard $place (join " ||\n" $inMap)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "pod-reloader.anyOf" $any -}}
{{- end -}}

{{- /* In CEL, on one line: whether an annotation of a workload is a setting in a dialect of others that is read; empty if none
is. */ -}}
{{- define "pod-reloader.isSettingOfOthers" -}}
{{- $dialects := include "pod-reloader.dialects" . | splitList "," -}}
{{- $keys := dict
  "stakater" (list "reloader.stakater.com/auto" "reloader.stakater.com/search" "configmap.reloader.stakater.com/auto" "secret.reloader.stakater.com/auto" "configmap.reloader.stakater.com/reload" "secret.reloader.stakater.com/reload" "configmaps.exclude.reloader.stakater.com/reload" "secrets.exclude.reloader.stakater.com/reload" "deployment.reloader.stakater.com/pause-period" "reloader.stakater.com/rollout-strategy")
  "wave" (list "wave.pusher.com/update-on-config-change" "wave.pusher.com/extra-configmaps" "wave.pusher.com/extra-secrets")
  "trigger-controller" (list "trigger.k8s.io/triggering-configMaps" "trigger.k8s.io/triggering-secrets")
  "fabric8" (list "configmap.fabric8.io/update-on-change")
  "infisical" (list "secrets.infisical.com/auto-reload")
  "onepassword" (list "operator.1password.io/auto-restart")
-}}
{{- if .Values.secretProviderClasses.enabled -}}
{{- range list "secretproviderclass.reloader.stakater.com/auto" "secretproviderclass.reloader.stakater.com/reload" "secretproviderclasses.exclude.reloader.stakater.com/reload" -}}
{{- $_ := set $keys "stakater" (append (get $keys "stakater") .) -}}
{{- end -}}
{{- end -}}
{{- $any := list -}}
{{- with include "pod-reloader.keysOf" (list $keys $dialects) -}}
{{- $any = append $any (printf "key in [%s]" .) -}}
{{- end -}}
{{- if has "stackable" $dialects -}}
{{- $any = append $any "key.startsWith('restarter.stackable.tech/ignore-configmap.')" -}}
{{- $any = append $any "key.startsWith('restarter.stackable.tech/ignore-secret.')" -}}
{{- end -}}
{{- join " || " $any | replace "\n" " " -}}
{{- end -}}

{{- /* In CEL, on one line: the labels of a workload that are settings, as the items of a list. */ -}}
{{- define "pod-reloader.settingLabels" -}}
{{- $keys := dict
  "pod-reloader" (list "pod-reloader.cs.sap.com/ignored" "pod-reloader.cs.sap.com/disabled")
  "stackable" (list "restarter.stackable.tech/enabled")
-}}
{{- /* Our own are read in every dialect. */ -}}
{{- $dialects := prepend (include "pod-reloader.dialects" . | splitList ",") "pod-reloader" | uniq -}}
{{- include "pod-reloader.keysOf" (list $keys $dialects) | replace "\n" " " -}}
{{- end -}}

{{- /* In CEL: whether what the text says of `object` is true of it, or was before the write. */ -}}
{{- define "pod-reloader.nowOrBefore" -}}
{{ . }} ||
(oldObject != null && (
{{ regexReplaceAll "\\bobject(\\.|\\[)" . "oldObject${1}" }}))
{{- end -}}

{{- /* In CEL: whether a workload opts in; empty if all do. It may be true of some that do not. */ -}}
{{- define "pod-reloader.optedIn" -}}
{{- $dialects := include "pod-reloader.dialects" . | splitList "," -}}
{{- if or (not .Values.autoReloadAll) (has "pod-reloader" $dialects) -}}
{{- /* What subscribes by being there, and what does unless it is "false". */ -}}
{{- $lists := dict
  "pod-reloader" (list "pod-reloader.cs.sap.com/configmaps" "pod-reloader.cs.sap.com/secrets")
  "stakater" (list "configmap.reloader.stakater.com/reload" "secret.reloader.stakater.com/reload")
  "trigger-controller" (list "trigger.k8s.io/triggering-configMaps" "trigger.k8s.io/triggering-secrets")
  "fabric8" (list "configmap.fabric8.io/update-on-change")
-}}
{{- $switches := dict
  "pod-reloader" (list "pod-reloader.cs.sap.com/auto")
  "stakater" (list "reloader.stakater.com/auto" "configmap.reloader.stakater.com/auto" "secret.reloader.stakater.com/auto" "reloader.stakater.com/search")
  "wave" (list "wave.pusher.com/update-on-config-change")
  "infisical" (list "secrets.infisical.com/auto-reload")
  "onepassword" (list "operator.1password.io/auto-restart")
-}}
{{- if .Values.secretProviderClasses.enabled -}}
{{- $_ := set $lists "pod-reloader" (append (get $lists "pod-reloader") "pod-reloader.cs.sap.com/secretproviderclasses") -}}
{{- $_ := set $lists "stakater" (append (get $lists "stakater") "secretproviderclass.reloader.stakater.com/reload") -}}
{{- $_ := set $switches "stakater" (append (get $switches "stakater") "secretproviderclass.reloader.stakater.com/auto") -}}
{{- end -}}
{{- $any := list -}}
{{- if .Values.autoReloadAll -}}
{{- $any = append $any "!has(object.metadata.annotations) ||\n!('pod-reloader.cs.sap.com/auto' in object.metadata.annotations) ||\nobject.metadata.annotations['pod-reloader.cs.sap.com/auto'] != 'false'" -}}
{{- end -}}
{{- $places := dict "object.metadata.annotations" "has(object.metadata.annotations) &&\n" -}}
{{- range $annotations, $guard := merge $places (include "pod-reloader.inTemplates" (list . "annotations") | fromJson) -}}
{{- $read := $dialects -}}
{{- if ne $annotations "object.metadata.annotations" -}}
{{- $read = has "stakater" $dialects | ternary (list "stakater") list -}}
{{- end -}}
{{- $asked := list -}}
{{- with include "pod-reloader.keysOf" (list $lists $read) -}}
{{- $asked = append $asked (printf "[%s].exists(key, key in %s)" . $annotations) -}}
{{- end -}}
{{- with include "pod-reloader.keysOf" (list $switches $read) -}}
{{- $asked = append $asked (printf "[%s].exists(key, key in %s && %s[key] != 'false')" . $annotations $annotations) -}}
{{- end -}}
{{- with $asked -}}
{{- $any = append $any (printf "%s(%s)" $guard (join " ||\n" .)) -}}
{{- end -}}
{{- end -}}
{{- if has "stackable" $dialects -}}
{{- $any = append $any "has(object.metadata.labels) &&\n'restarter.stackable.tech/enabled' in object.metadata.labels &&\nobject.metadata.labels['restarter.stackable.tech/enabled'] == 'true'" -}}
{{- end -}}
{{- include "pod-reloader.anyOf" $any -}}
{{- end -}}
{{- end -}}

{{- /* In CEL: the annotations or the labels of pod templates, and before each what makes sure that they are there. Those of
built-in workloads, or at the paths that `templatePaths` names. */ -}}
{{- define "pod-reloader.inTemplates" -}}
{{- $map := last . -}}
{{- $places := dict -}}
{{- with (first .).templatePaths -}}
{{- range splitList "," . -}}
{{- $_ := set $places (include "pod-reloader.mapAt" (list "object" (printf "%s.metadata.%s" . $map))) "" -}}
{{- end -}}
{{- else -}}
{{- $place := printf "object.spec.template.metadata.%s" $map -}}
{{- $_ := set $places $place (printf "has(%s) &&\n" $place) -}}
{{- end -}}
{{- toJson $places -}}
{{- end -}}

{{- /* The keys of some dialects, as the items of a list in CEL. */ -}}
{{- define "pod-reloader.keysOf" -}}
{{- $ofDialect := index . 0 -}}
{{- $keys := list -}}
{{- range index . 1 -}}
{{- range get $ofDialect . | default list -}}
{{- $keys = append $keys (squote .) -}}
{{- end -}}
{{- end -}}
{{- join ",\n" $keys -}}
{{- end -}}

{{- /* In CEL: whether one of these holds. */ -}}
{{- define "pod-reloader.anyOf" -}}
{{- if gt (len .) 1 -}}
({{ join ") ||\n(" . }})
{{- else -}}
{{ first . }}
{{- end -}}
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

{{- /* The custom resources, in JSON: presets by what they stand for, others as they are given. */ -}}
{{- define "pod-reloader.customResources" -}}
{{- $presets := .Files.Get "presets.yaml" | fromYaml -}}
{{- $items := list -}}
{{- range .Values.customResources -}}
{{- if kindIs "string" . -}}
{{- $items = concat $items (get $presets .) -}}
{{- else -}}
{{- $items = append $items . -}}
{{- end -}}
{{- end -}}
{{- $kinds := list "apps/Deployment" "apps/StatefulSet" "apps/DaemonSet" -}}
{{- range $items -}}
{{- $kind := printf "%s/%s" .group .kind -}}
{{- if has $kind $kinds -}}
{{- fail (printf "customResources: %s is managed already" $kind) -}}
{{- end -}}
{{- $kinds = append $kinds $kind -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{- /* Their resources, by API group, in JSON. */ -}}
{{- define "pod-reloader.customGroups" -}}
{{- include "pod-reloader.resourcesByGroup" (include "pod-reloader.customResources" . | fromJson).items -}}
{{- end -}}

{{- /* The kinds whose fields may be bound, in JSON. */ -}}
{{- define "pod-reloader.boundKinds" -}}
{{- $kinds := list -}}
{{- range (include "pod-reloader.customResources" . | fromJson).items -}}
{{- $kinds = append $kinds (printf "%s/%s" .group .kind) -}}
{{- end -}}
{{- $items := list -}}
{{- if .Values.fieldBindings.enabled }}{{ $items = .Values.fieldBindings.kinds | default list }}{{ end -}}
{{- range $items -}}
{{- $kind := printf "%s/%s" .group .kind -}}
{{- if or (not (contains "." .group)) (regexMatch `(^|\.)k8s\.io$` .group) -}}
{{- fail (printf "fieldBindings.kinds: %s is a kind of Kubernetes itself, whose fields are never bound" $kind) -}}
{{- end -}}
{{- if has .group (list "pod-reloader.github.io" "pod-reloader.cs.sap.com") -}}
{{- fail (printf "fieldBindings.kinds: %s is a kind of pod-reloader, whose fields are never bound" $kind) -}}
{{- end -}}
{{- if has $kind $kinds -}}
{{- fail (printf "fieldBindings.kinds: %s is named twice, or is one of customResources, which pod-reloader restarts" $kind) -}}
{{- end -}}
{{- $kinds = append $kinds $kind -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{- /* Those of them whose fields the webhook fills in new objects, in JSON. */ -}}
{{- define "pod-reloader.filledKinds" -}}
{{- $items := list -}}
{{- range (include "pod-reloader.boundKinds" . | fromJson).items -}}
{{- if .fillOnCreate -}}{{- $items = append $items . -}}{{- end -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end -}}

{{- /* The resources of some kinds, by API group, in JSON. */ -}}
{{- define "pod-reloader.resourcesByGroup" -}}
{{- $groups := dict -}}
{{- range . -}}
{{- $_ := set $groups .group (append (get $groups .group | default list) .resource) -}}
{{- end -}}
{{- toJson $groups -}}
{{- end -}}

{{- /* The paths of all pod templates, with commas between them; empty without custom resources. */ -}}
{{- define "pod-reloader.templatePaths" -}}
{{- with (include "pod-reloader.customResources" . | fromJson).items -}}
{{- $paths := list "spec.template" -}}
{{- range . -}}
{{- $paths = concat $paths (.podTemplates | default list) -}}
{{- end -}}
{{- uniq $paths | join "," -}}
{{- end -}}
{{- end -}}

{{- /* In CEL: what is at a path of an object, as an optional: any field on the way to it may be missing. */ -}}
{{- define "pod-reloader.at" -}}
{{- index . 0 -}}
{{- range index . 1 | splitList "." -}}
[?{{ squote . }}]
{{- end -}}
{{- end -}}

{{- /* In CEL: the same, as a map that is empty where nothing is. */ -}}
{{- define "pod-reloader.mapAt" -}}
{{ include "pod-reloader.at" . }}.orValue({})
{{- end -}}

{{- /* In CEL: whether the annotations of the pod template at a path take the old hash: Kubernetes takes 256 KiB of them.
With pins, the old pins, too. */ -}}
{{- define "pod-reloader.hashFits" -}}
{{- $annotations := printf "%s.metadata.annotations" (last .) -}}
{{- $new := include "pod-reloader.mapAt" (list "object" $annotations) -}}
{{- $old := include "pod-reloader.at" (list "oldObject" $annotations) -}}
{{- $key := "pod-reloader.cs.sap.com/config-hash" -}}
{{- if (first .).Values.pin.enabled -}}
{{- $pins := "pod-reloader.cs.sap.com/pins" -}}
[{{ $new }}].exists(all, all.map(key, key != '{{ $key }}' && key != '{{ $pins }}' && type(all[key]) == string, size(bytes(key + all[key]))).sum() +
size(bytes('{{ $key }}' + {{ $old }}[?'{{ $key }}'].orValue(''))) +
size(bytes('{{ $pins }}' + {{ $old }}[?'{{ $pins }}'].orValue(''))) <= 262144)
{{- else -}}
[{{ $new }}].exists(all, all.map(key, key != '{{ $key }}' && type(all[key]) == string, size(bytes(key + all[key]))).sum() +
size(bytes('{{ $key }}' + {{ $old }}[?'{{ $key }}'].orValue(''))) <= 262144)
{{- end -}}
{{- end -}}

{{- /* The conditions under which hash and pins at a path are put back: they change, and not by an undo. */ -}}
{{- define "pod-reloader.pinConditions" -}}
{{- $annotations := printf "%s.metadata.annotations" . -}}
{{- $new := include "pod-reloader.at" (list "object" $annotations) -}}
{{- $old := include "pod-reloader.at" (list "oldObject" $annotations) -}}
{{- $pins := "[?'pod-reloader.cs.sap.com/pins']" -}}
- name: hash-or-pins-change
  expression: >-
    ['pod-reloader.cs.sap.com/config-hash', 'pod-reloader.cs.sap.com/pins'].exists(key,
    {{ $new }}[?key] !=
    {{ $old }}[?key])
# An undo brings other pins, and the hash that belongs to them. The webhook decides about it.
- name: not-an-undo
  expression: >-
    {{ $new }}{{ $pins }}.orValue('') == '' ||
    {{ $new }}{{ $pins }} ==
    {{ $old }}{{ $pins }}
{{- end -}}

{{- /* The mutation that puts back what was undone, if the pins at a path were dropped with it. The other mutations
put the pins back, so the webhook could no longer tell. */ -}}
{{- define "pod-reloader.keepsUndone" -}}
{{- $new := include "pod-reloader.at" (list "object" "metadata.annotations") -}}
{{- $old := include "pod-reloader.at" (list "oldObject" "metadata.annotations") -}}
{{- $undone := "[?'pod-reloader.cs.sap.com/undone']" -}}
- patchType: JSONPatch
  jsonPatch:
    expression: >-
      {{ include "pod-reloader.at" (list "object" (printf "%s.metadata.annotations" .)) }}[?'pod-reloader.cs.sap.com/pins'].hasValue() ||
      {{ $new }}{{ $undone }}.hasValue() ||
      !{{ $new }}[?'pod-reloader.cs.sap.com/pin'].hasValue() ||
      !{{ $old }}{{ $undone }}.hasValue() ? [] :
      [JSONPatch{op: 'add', path: '/metadata/annotations/pod-reloader.cs.sap.com~1undone',
      value: {{ $old }}{{ $undone }}.value()}]
{{- end -}}

{{- /* In CEL: whether the metadata of a custom resource changes by which others delete it, or by which we know objects.
Whoever waits for a deletion may take finalizers away. */ -}}
{{- define "pod-reloader.decidingMetadataChanges" -}}
{{- $isOurs := "key.startsWith('pod-reloader.cs.sap.com/')" -}}
object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences ||
(object.metadata.?finalizers != oldObject.metadata.?finalizers && !has(oldObject.metadata.deletionTimestamp)) ||
[[object.metadata.?labels.orValue({}), oldObject.metadata.?labels.orValue({})],
[object.metadata.?annotations.orValue({}), oldObject.metadata.?annotations.orValue({})]].exists(pair,
pair[0].exists(key, {{ $isOurs }} && !(key in pair[1] && pair[0][key] == pair[1][key])) ||
pair[1].exists(key, {{ $isOurs }} && !(key in pair[0])))
{{- end -}}

{{- /* A value in JSON, with each text in it rendered as a template of its own: YAML would fold and quote the templates. */ -}}
{{- define "pod-reloader.renderedJson" -}}
{{- $value := first . -}}
{{- $root := last . -}}
{{- $parts := list -}}
{{- if kindIs "map" $value -}}
{{- range $key, $part := $value -}}
{{- $parts = append $parts (printf "%s:%s" (tpl $key $root | toJson) (include "pod-reloader.renderedJson" (list $part $root))) -}}
{{- end -}}
{ {{- join "," $parts -}} }
{{- else if kindIs "slice" $value -}}
{{- range $value -}}
{{- $parts = append $parts (include "pod-reloader.renderedJson" (list . $root)) -}}
{{- end -}}
[{{ join "," $parts }}]
{{- else if kindIs "string" $value -}}
{{ tpl $value $root | toJson }}
{{- else -}}
{{ toJson $value }}
{{- end -}}
{{- end -}}

{{- /* A CustomResourceDefinition of the chart, by its resource. */ -}}
{{- define "pod-reloader.crd" -}}
{{- $root := first . -}}
{{- $crd := $root.Files.Get (printf "files/%s.json" (last .)) | fromJson -}}
{{- $own := $root.Values.crds.annotations | default dict -}}
{{- $annotations := merge (include "pod-reloader.stays" $root | fromYaml) $own -}}
{{- /* Argo CD takes several options. */ -}}
{{- with get $own "argocd.argoproj.io/sync-options" -}}
{{- $_ := set $annotations "argocd.argoproj.io/sync-options" (printf "%s,%s" (get $annotations "argocd.argoproj.io/sync-options") .) -}}
{{- end -}}
{{- $_ := set $crd.metadata "labels" (include "pod-reloader.labels" $root | fromYaml) -}}
{{- $_ := set $crd.metadata "annotations" $annotations -}}
{{ toYaml $crd }}
{{- end -}}

{{- /* Annotations of what stays when the release goes. Helm's is known to Argo CD only when it deletes an Application, not
when it prunes. */ -}}
{{- define "pod-reloader.stays" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false,Delete=false
kustomize.toolkit.fluxcd.io/prune: disabled
{{- end -}}

{{- /* Refuses values that have another name or other words now, and names these. The schema takes the old ones, because its
messages could not. */ -}}
{{- define "pod-reloader.refuseRenamed" -}}
{{- range $row := .Files.Get "renamed.yaml" | fromYamlArray -}}
{{- $value := $.Values -}}
{{- range $name := splitList "." $row.value -}}
{{- if kindIs "map" $value }}{{ $value = get $value $name }}{{ else }}{{ $value = "" }}{{ end -}}
{{- end -}}
{{- if $row.word -}}
{{- if eq (toString $value) $row.word -}}
{{- fail (printf "%s: %s is now %s (docs/values.md#renamed-values)" $row.value $row.word $row.now) -}}
{{- end -}}
{{- else -}}
{{- /* SAP's chart has empty selectors in its values. */ -}}
{{- if kindIs "map" $value }}{{ $value = values $value | compact }}{{ end -}}
{{- if or $value (kindIs "bool" $value) -}}
{{- fail (printf "%s is now %s (docs/values.md#renamed-values)" $row.value $row.now) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

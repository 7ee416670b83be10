{{- /* A Deployment: that of the operator, or of the writer, which serves no webhook and sends no notifications. */ -}}
{{- define "pod-reloader.deployment" -}}
{{- $isWriter := eq (include "pod-reloader.part" .) "writer" }}
{{- $notifies := and (not $isWriter) .Values.notifications.enabled }}
{{- $mountedTls := and (not $isWriter) (include "pod-reloader.mountedTlsSecret" .) }}
{{- $clientCA := and (not $isWriter) (or .Values.webhook.clientCA.configMap .Values.webhook.clientCA.secret) }}
{{- $replicas := $isWriter | ternary .Values.writer.replicaCount .Values.replicaCount }}
{{- $metricsPort := include "pod-reloader.metricsPort" . }}
{{- $probesPort := include "pod-reloader.probesPort" . }}
{{- $hostNetwork := and (not $isWriter) .Values.hostNetwork }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "pod-reloader.partName" . }}
  namespace: {{ include "pod-reloader.namespace" . | quote }}
  labels:
    {{- include "pod-reloader.labels" . | nindent 4 }}
    pod-reloader.cs.sap.com/ignored: "true"
  {{- with .Values.deploymentAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  replicas: {{ $replicas }}
  {{- with .Values.revisionHistoryLimit | toString | regexFind "^[0-9]+$" }}
  revisionHistoryLimit: {{ . }}
  {{- end }}
  {{- if .Values.strategy }}
  strategy:
    {{- toYaml .Values.strategy | nindent 4 }}
  {{- else if and $hostNetwork (gt (int $replicas) 1) }}
  # No two replicas fit on one node: an old one makes room for a new one.
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 0
      maxUnavailable: 1
  {{- end }}
  selector:
    matchLabels:
      {{- include "pod-reloader.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      {{- with .Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      labels:
        {{- include "pod-reloader.selectorLabels" . | nindent 8 }}
        {{- with include "pod-reloader.ownLabels" (list . .Values.podLabels) }}
        {{- . | nindent 8 }}
        {{- end }}
    spec:
      {{- with include "pod-reloader.imagePullSecrets" . }}
      {{- . | nindent 6 }}
      {{- end }}
      serviceAccountName: {{ include "pod-reloader.serviceAccountName" . }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      hostNetwork: {{ $hostNetwork }}
      dnsPolicy: {{ .Values.dnsPolicy | default "ClusterFirst" }}
      {{- with include "pod-reloader.fields" (list .Values "dnsConfig" "hostAliases" "runtimeClassName") }}
      {{- . | nindent 6 }}
      {{- end }}
      # It goes on serving for 15 s after SIGTERM, until nobody calls it any more.
      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds | default 30 }}
      {{- with .Values.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- else }}
      affinity:
        podAntiAffinity:
          # Where nodes have no zone, the scheduler heeds none of the soft constraints below.
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                matchLabelKeys: [pod-template-hash]
                labelSelector:
                  matchLabels:
                    {{- include "pod-reloader.selectorLabels" . | nindent 20 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- range .Values.topologySpreadConstraints }}
        - {{- toYaml . | nindent 10 }}
          {{- if not .labelSelector }}
          labelSelector:
            matchLabels:
              {{- include "pod-reloader.selectorLabels" $ | nindent 14 }}
          {{- end }}
        {{- else }}
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          nodeTaintsPolicy: Honor
          matchLabelKeys: [pod-template-hash]
          whenUnsatisfiable: {{ .Values.defaultHostNameSpreadPolicy }}
          labelSelector:
            matchLabels:
              {{- include "pod-reloader.selectorLabels" . | nindent 14 }}
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          nodeTaintsPolicy: Honor
          matchLabelKeys: [pod-template-hash]
          whenUnsatisfiable: {{ .Values.defaultZoneSpreadPolicy }}
          labelSelector:
            matchLabels:
              {{- include "pod-reloader.selectorLabels" . | nindent 14 }}
        {{- end }}
      containers:
        - name: controller
          image: {{ include "pod-reloader.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - --leader-elect
            - --leader-election-lease={{ include "pod-reloader.partName" . }}
            - --hash-keys-secret={{ include "pod-reloader.hashKeysSecret" . }}
            {{- with .Values.watch.namespaces }}
            - --watch-namespaces={{ join "," . }}
            {{- end }}
            {{- with .Values.ignoreNamespaces }}
            - --ignore-namespaces={{ join "," . }}
            {{- end }}
            {{- with include "pod-reloader.selectorFlag" .Values.watch.namespaceSelector }}
            - {{ printf "--watch-namespace-selector=%s" . | quote }}
            {{- end }}
            {{- if not $isWriter }}
            {{- with include "pod-reloader.selectorFlag" .Values.watch.workloadSelector }}
            - {{ printf "--watch-workload-selector=%s" . | quote }}
            {{- end }}
            {{- with include "pod-reloader.dialects" . }}
            {{- if ne . "pod-reloader" }}
            - --dialects={{ . }}
            {{- end }}
            {{- end }}
            {{- include "pod-reloader.switch" (list .Values.autoReloadAll "--auto-reload-all") }}
            {{- if .Values.ignoreSecrets }}
            - --resources-to-ignore=secrets
            {{- end }}
            {{- if .Values.ignoreConfigMaps }}
            - --resources-to-ignore=configmaps
            {{- end }}
            {{- with .Values.resourceLabelSelector }}
            - {{ printf "--resource-label-selector=%s" . | quote }}
            {{- end }}
            {{- with (include "pod-reloader.customResources" . | fromJson).items }}
            - {{ printf "--custom-resources=%s" (toJson .) | squote }}
            {{- end }}
            {{- include "pod-reloader.switch" (list .Values.runCronJobsOnChange "--run-cron-jobs-on-change") }}
            {{- include "pod-reloader.switch" (list .Values.httpReload.enabled "--http-reload") }}
            {{- if include "pod-reloader.unsticks" . }}
            - --unstick-after={{ .Values.unstick.after }}
            {{- end }}
            - --settle-period={{ .Values.settlePeriod }}
            - --release-wait={{ .Values.releaseWait }}
            {{- if .Values.flux.enabled }}
            - {{ printf "--flux-namespaces=%s" (join "," .Values.flux.namespaces) | quote }}
            {{- end }}
            {{- if .Values.argoCD.enabled }}
            - {{ printf "--argo-cd-namespaces=%s" (join "," .Values.argoCD.namespaces) | quote }}
            {{- end }}
            {{- with .Values.staged }}
            {{- if ne (.byDefault | default "none") "none" }}
            - --staged-by-default={{ .byDefault }}
            {{- end }}
            - --staged-soak={{ .soak }}
            - --staged-deadline={{ .deadline }}
            {{- end }}
            {{- include "pod-reloader.switch" (list (include "pod-reloader.readsNamespaces" .) "--namespace-annotations") }}
            {{- with .Values.maxConcurrentRestarts }}
            {{- if .cluster }}
            - --max-concurrent-restarts-cluster={{ int64 .cluster }}
            {{- end }}
            {{- if .namespace }}
            - --max-concurrent-restarts-namespace={{ int64 .namespace }}
            {{- end }}
            {{- end }}
            {{- include "pod-reloader.switch" (list .Values.secretProviderClasses.enabled "--secret-provider-classes") }}
            {{- include "pod-reloader.switch" (list .Values.pin.enabled "--pin") }}
            {{- include "pod-reloader.switch" (list ((.Values.metrics | default dict).byNamespace | default dict).enabled "--metrics-by-namespace") }}
            {{- include "pod-reloader.switch" (list .Values.protect.enabled "--protect") }}
            {{- include "pod-reloader.switch" (list (and .Values.protect.enabled .Values.protect.templates) "--protect-templates") }}
            {{- end }}
            {{- with include "pod-reloader.controllers" . }}
            - --controllers={{ . }}
            {{- end }}
            {{- include "pod-reloader.switch" (list .Values.sync.enabled "--sync") }}
            {{- with (include "pod-reloader.boundKinds" . | fromJson).items }}
            - {{ printf "--field-bindings-kinds=%s" (toJson .) | squote }}
            {{- end }}
            {{- if not $isWriter }}
            - --max-restarts={{ int64 .Values.maxRestarts }}
            {{- end }}
            - --namespace-memory={{ .Values.namespaceMemory }}
            - --reconcile={{ .Values.reconcile }}
            {{- if not $isWriter }}
            - --first-stamp={{ .Values.firstStamp }}
            - --webhook-bind-address=:{{ .Values.webhook.port }}
            - --webhook-tls-min-version={{ .Values.webhook.tlsMinVersion }}
            {{- if $mountedTls }}
            - --webhook-tls-directory=/etc/pod-reloader/tls
            {{- else }}
            - --webhook-tls-secret={{ include "pod-reloader.ownTlsSecret" . }}
            - --webhook-service={{ include "pod-reloader.fullname" . }}
            - --webhook-configuration={{ include "pod-reloader.fullname" . }}
            {{- end }}
            {{- if $clientCA }}
            - --webhook-client-ca-file=/etc/pod-reloader/client-ca/ca.crt
            {{- end }}
            {{- if $notifies }}
            {{- with .Values.notifications }}
            - --notifications-url-file=/etc/pod-reloader/notifications/url
            - --notifications-format={{ .format }}
            - --notifications-send={{ .send }}
            {{- with .cluster }}
            - {{ printf "--notifications-cluster=%s" . | quote }}
            {{- end }}
            {{- with .proxy }}
            - {{ printf "--notifications-proxy=%s" . | quote }}
            {{- end }}
            {{- if .caConfigMap }}
            - --notifications-ca-file=/etc/pod-reloader/notifications-ca/ca.crt
            {{- end }}
            {{- end }}
            {{- end }}
            {{- end }}
            {{- if ne $metricsPort "8080" }}
            - --metrics-bind-address=:{{ $metricsPort }}
            {{- end }}
            {{- if ne $probesPort "8081" }}
            - --health-probe-bind-address=:{{ $probesPort }}
            {{- end }}
            - --log-level={{ .Values.log.level }}
            - --log-format={{ .Values.log.format }}
            {{- with .Values.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            {{- with .Values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with .Values.extraEnvFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            {{- if not $isWriter }}
            - name: webhook
              containerPort: {{ .Values.webhook.port }}
            {{- end }}
            - name: metrics
              containerPort: {{ $metricsPort }}
            - name: probes
              containerPort: {{ $probesPort }}
          livenessProbe:
            {{- with .Values.livenessProbe }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
            httpGet:
              port: probes
              path: /healthz
          readinessProbe:
            {{- with .Values.readinessProbe }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
            httpGet:
              port: probes
              path: /readyz
          resources:
            {{- toYaml ($isWriter | ternary .Values.writer.resources .Values.resources) | nindent 12 }}
          {{- with .Values.securityContext }}
          securityContext:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if or $mountedTls $clientCA $notifies .Values.extraVolumeMounts }}
          volumeMounts:
            {{- if $mountedTls }}
            - name: tls
              mountPath: /etc/pod-reloader/tls
              readOnly: true
            {{- end }}
            {{- if $clientCA }}
            - name: client-ca
              mountPath: /etc/pod-reloader/client-ca
              readOnly: true
            {{- end }}
            {{- if $notifies }}
            - name: notifications
              mountPath: /etc/pod-reloader/notifications
              readOnly: true
            {{- if .Values.notifications.caConfigMap }}
            - name: notifications-ca
              mountPath: /etc/pod-reloader/notifications-ca
              readOnly: true
            {{- end }}
            {{- end }}
            {{- with .Values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- end }}
        {{- with .Values.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or $mountedTls $clientCA $notifies .Values.extraVolumes }}
      volumes:
        {{- if $mountedTls }}
        - name: tls
          secret:
            secretName: {{ $mountedTls }}
        {{- end }}
        {{- with .Values.webhook.clientCA.configMap }}
        - name: client-ca
          configMap:
            name: {{ . }}
            items:
              - key: ca.crt
                path: ca.crt
        {{- end }}
        {{- with .Values.webhook.clientCA.secret }}
        - name: client-ca
          secret:
            secretName: {{ . }}
            items:
              - key: ca.crt
                path: ca.crt
        {{- end }}
        {{- with .Values.notifications }}
        {{- if .enabled }}
        - name: notifications
          secret:
            secretName: {{ .existingSecret }}
            # Without it no notifications are sent, and all else goes on.
            optional: true
            items:
              - key: {{ .key | quote }}
                path: url
        {{- if .caConfigMap }}
        - name: notifications-ca
          configMap:
            name: {{ .caConfigMap }}
            optional: true
            items:
              - key: ca.crt
                path: ca.crt
        {{- end }}
        {{- end }}
        {{- end }}
        {{- with .Values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
{{- end -}}

{{- /* A flag, in a line of its own, if this is true. */ -}}
{{- define "pod-reloader.switch" -}}
{{- if first . }}
            - {{ last . }}
{{- end }}
{{- end -}}

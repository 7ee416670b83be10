//go:build tools

// Package tools keeps Helm in go.mod. Go 1.18, with which this version was released, knows no tool lines.
package tools

import _ "helm.sh/helm/v3/cmd/helm"

//go:build tools

// Package tools names the apiserver that tests run. Set-up builds it into target/tools.
package tools

import _ "k8s.io/kubernetes/cmd/kube-apiserver"

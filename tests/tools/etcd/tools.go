//go:build tools

// Package tools names the store of the apiserver that tests run. Set-up builds it into target/tools.
package tools

import _ "go.etcd.io/etcd/server/v3"

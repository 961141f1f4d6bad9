//go:build tools

// Package tools names the reference caller of plugins. Set-up builds it into target/tools.
package tools

import _ "github.com/containernetworking/cni/cnitool"

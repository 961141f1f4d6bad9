//go:build tools

// Package tools names the programs that tests run and Debian does not have. Set-up builds them into target/tools.
package tools

import _ "github.com/containernetworking/cni/cnitool"

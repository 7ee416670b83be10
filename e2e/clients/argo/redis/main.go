// Command redis serves the part of Redis that Argo CD uses, from memory.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: redis ADDRESS")
		os.Exit(1)
	}
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
		os.Exit(1)
	}
	// Keys expire only as its clock is moved, which is not done for us.
	for range time.Tick(time.Second) {
		server.FastForward(time.Second)
	}
}

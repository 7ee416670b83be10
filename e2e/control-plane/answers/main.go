// The program of test pods on a real node. It answers with what it has read, at its start and now:
//
//	GET /env/NAME     the variable, or 404
//	GET /file/PATH    the file as it is now, or 404
//	GET /start/PATH   the file as it was at the start, if the variable START_FILES lists it, separated by commas
//	GET /ready        200, unless the content of the file that READY_FILE names is "bad"
//	GET /memory/N     allocates N MiB and keeps them
//	GET /exit/CODE    ends with this code
//
// PATH is absolute, without its first slash. The program ends at SIGTERM, at once. As "answers pause", or if its file
// is called pause, it does nothing until then.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Memory that was asked for.
var kept [][]byte

func main() {
	go endAtSignal()
	if filepath.Base(os.Args[0]) == "pause" || len(os.Args) > 1 && os.Args[1] == "pause" {
		select {}
	}
	start := readFiles(os.Getenv("START_FILES"))
	http.HandleFunc("GET /env/{name}", func(w http.ResponseWriter, r *http.Request) {
		value, found := os.LookupEnv(r.PathValue("name"))
		answer(w, value, found)
	})
	http.HandleFunc("GET /file/{path...}", func(w http.ResponseWriter, r *http.Request) {
		content, err := os.ReadFile("/" + r.PathValue("path"))
		answer(w, string(content), err == nil)
	})
	http.HandleFunc("GET /start/{path...}", func(w http.ResponseWriter, r *http.Request) {
		content, found := start["/"+r.PathValue("path")]
		answer(w, content, found)
	})
	http.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		content, _ := os.ReadFile(os.Getenv("READY_FILE"))
		answer(w, "ready", strings.TrimSpace(string(content)) != "bad")
	})
	http.HandleFunc("GET /memory/{mebibytes}", func(w http.ResponseWriter, r *http.Request) {
		keep(number(r.PathValue("mebibytes")))
		answer(w, "kept", true)
	})
	http.HandleFunc("GET /exit/{code}", func(_ http.ResponseWriter, r *http.Request) {
		os.Exit(number(r.PathValue("code")))
	})
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// The first process of a container gets no signal that it does not ask for.
func endAtSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	os.Exit(0)
}

func readFiles(paths string) map[string]string {
	contents := map[string]string{}
	for _, path := range strings.Split(paths, ",") {
		if content, err := os.ReadFile(path); err == nil {
			contents[path] = string(content)
		}
	}
	return contents
}

func keep(mebibytes int) {
	for range mebibytes {
		block := make([]byte, 1<<20)
		for i := range block {
			// Untouched pages take no memory.
			block[i] = 1
		}
		kept = append(kept, block)
	}
}

func number(text string) int {
	number, _ := strconv.Atoi(text)
	return number
}

func answer(w http.ResponseWriter, content string, found bool) {
	if !found {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	fmt.Fprint(w, content)
}

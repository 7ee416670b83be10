module pod-reloader/e2e/cluster/answers

go 1.26.0

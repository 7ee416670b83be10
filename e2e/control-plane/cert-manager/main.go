// Command cert-manager runs those controllers of cert-manager that issue from self-signed and CA
// issuers, and the injector of CA bundles, in one process: the project's own main packages cannot
// be installed from the module proxy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/util"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	healthAddress := flag.String("health-address", "127.0.0.1:9403", "where /healthz is served")
	// --kubeconfig is a flag of controller-runtime.
	flag.Parse()
	logs.InitLogs()
	ctrl.SetLogger(logs.Log)
	if err := run(ctrl.SetupSignalHandler(), flag.Lookup("kubeconfig").Value.String(), *healthAddress); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, healthAddress string) error {
	all, err := newManager(kubeconfig, healthAddress)
	if err != nil {
		return err
	}
	if err := addInjectors(ctx, all); err != nil {
		return fmt.Errorf("setting up the injectors: %w", err)
	}
	if err := addControllers(ctx, all, kubeconfig); err != nil {
		return err
	}
	return all.Start(ctx)
}

func newManager(kubeconfig, healthAddress string) (manager.Manager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubernetes.AddToScheme, scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		if err := add(types); err != nil {
			return nil, err
		}
	}
	// The injector's field manager is the first part of the user agent.
	return ctrl.NewManager(util.RestConfigWithUserAgent(config, "cainjector"), ctrl.Options{
		Scheme:                 types,
		HealthProbeBindAddress: healthAddress,
		Metrics:                metrics.Options{BindAddress: "0"},
	})
}

func addInjectors(ctx context.Context, all manager.Manager) error {
	return cainjector.RegisterAllInjectors(ctx, all, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.APIServiceName:                     true,
			cainjector.CustomResourceDefinitionName:       true,
		},
	})
}

func addControllers(ctx context.Context, all manager.Manager, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:    kubeconfig,
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		CertificateOptions: controller.CertificateOptions{
			// The defaults of cert-manager's own program.
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
	})
	if err != nil {
		return err
	}
	for _, name := range []string{
		issuers.ControllerName, clusterissuers.ControllerName,
		approver.ControllerName, ca.CRControllerName, selfsigned.CRControllerName,
		issuing.ControllerName, keymanager.ControllerName, readiness.ControllerName,
		requestmanager.ControllerName, revisionmanager.ControllerName, trigger.ControllerName,
	} {
		one, err := controller.Known()[name](factory)
		if err != nil {
			return fmt.Errorf("setting up %s: %w", name, err)
		}
		run := func(ctx context.Context) error { return one.Run(workers, ctx) }
		if err := all.Add(manager.RunnableFunc(run)); err != nil {
			return err
		}
	}
	return addCaches(all, factory)
}

// addCaches starts what all controllers share, and lets the health tell when it is filled.
func addCaches(all manager.Manager, factory *controller.ContextFactory) error {
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	var synced atomic.Bool
	run := func(ctx context.Context) error {
		shared.SharedInformerFactory.Start(ctx.Done())
		shared.KubeSharedInformerFactory.Start(ctx.Done())
		shared.SharedInformerFactory.WaitForCacheSync(ctx.Done())
		shared.KubeSharedInformerFactory.WaitForCacheSync(ctx.Done())
		synced.Store(all.GetCache().WaitForCacheSync(ctx))
		<-ctx.Done()
		return nil
	}
	if err := all.Add(manager.RunnableFunc(run)); err != nil {
		return err
	}
	return all.AddHealthzCheck("caches", func(*http.Request) error {
		if !synced.Load() {
			return errors.New("the caches are not filled yet")
		}
		return nil
	})
}

const workers = 5

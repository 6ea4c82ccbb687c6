// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

const abandonLong = `Give up on the instance of a Proxy that is being deleted while its host cannot be asked: for a host that is gone for good.

The Proxy goes, and whatever the host still holds stays there. Without --yes it says what that is, and changes nothing. Should the host come back, the
collector finds what was left, and removes it after its grace period.`

func newAbandon(s streams) *cobra.Command {
	var api apiFlags
	var namespace string
	var yes bool
	cmd := &cobra.Command{
		Use: "abandon PROXY", Short: "Give up on the instance of a Proxy whose host is gone for good", Long: abandonLong,
		Example: `  egress-proxies abandon -n team-a exit-1
  egress-proxies abandon -n team-a exit-1 --yes`,
		Args: UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := api.client()
			if err != nil {
				return err
			}
			return abandon(cmd.Context(), c, client.ObjectKey{Namespace: namespace, Name: args[0]}, yes, s.out)
		},
	}
	api.bind(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "`NAMESPACE` of the Proxy")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func abandon(ctx context.Context, c client.Client, key client.ObjectKey, yes bool, out io.Writer) error {
	var proxy v1alpha1.Proxy
	if err := c.Get(ctx, key, &proxy); err != nil {
		return fmt.Errorf("read proxy %s: %w", key, err)
	}
	ready := meta.FindStatusCondition(proxy.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case proxy.DeletionTimestamp.IsZero():
		return fmt.Errorf("proxy %s is not being deleted: delete it first (kubectl delete proxy -n %s %s --wait=false), and give up only if that fails", key, key.Namespace, key.Name)
	case ready == nil || ready.Reason != v1alpha1.ReasonDeleteFailed:
		return fmt.Errorf("proxy %s: its removal goes on, and has not failed: wait for it", key)
	}
	left := fmt.Sprintf("on host %s of entry %s: %s", proxy.Status.Host, proxy.Spec.Provider, proxy.Status.ProviderID)
	if !yes {
		_, err := fmt.Fprintf(out, "%s\nmay be left behind %s\n", ready.Message, left)
		return errors.Join(err, usageError{errors.New("nothing was changed: say --yes to give up on it")})
	}
	patch := client.MergeFrom(proxy.DeepCopy())
	if proxy.Annotations == nil {
		proxy.Annotations = map[string]string{}
	}
	proxy.Annotations[v1alpha1.AnnotationAbandon] = v1alpha1.AbandonConfirmed
	if err := c.Patch(ctx, &proxy, patch); err != nil {
		return fmt.Errorf("annotate proxy %s: %w", key, err)
	}
	_, err := fmt.Fprintf(out, "proxy %s is given up; what may be left behind %s\n", key, left)
	return err
}

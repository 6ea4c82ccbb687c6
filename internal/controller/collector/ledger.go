// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/egress-proxies/egress-proxies-operator/api/v1alpha1"
)

// Record is what is kept of an entry from one sweep to the next, over restarts.
type Record struct {
	Status v1alpha1.CollectorStatus
	// Approval is the token that somebody wrote; empty for none.
	Approval string
}

// next is the record to go on with: what is too old to matter is dropped, and what a clock that was set back left in the future counts as now.
func (r Record) next(now time.Time) v1alpha1.CollectorStatus {
	next := v1alpha1.CollectorStatus{Foreign: r.Status.Foreign}
	for _, one := range r.Status.Removed {
		switch age := now.Sub(one.Hour.Time); {
		case age < 0:
			next.Removed = counted(next.Removed, now, one.Count)
		case age < brakeTime+time.Hour:
			next.Removed = append(next.Removed, one)
		}
	}
	return next
}

// ErrNoRecord says that an entry has no place to keep a record in.
var ErrNoRecord = errors.New("it has no ProviderHealth yet")

// Ledger keeps records.
type Ledger interface {
	// Load reads an entry's record from where it is kept, and from no cache. The error wraps ErrNoRecord where there is no place for one.
	Load(ctx context.Context, entry string) (Record, error)
	// Save keeps the status of an entry.
	Save(ctx context.Context, entry string, status v1alpha1.CollectorStatus) error
}

// HealthLedger keeps records in ProviderHealths.
type HealthLedger struct {
	// Live reads from the API server, and from no cache.
	Live   client.Reader
	Writer client.StatusClient
	Now    func() time.Time
}

// Load reads the ProviderHealth of the entry.
func (l HealthLedger) Load(ctx context.Context, entry string) (Record, error) {
	health, err := l.get(ctx, entry)
	if err != nil {
		return Record{}, err
	}
	r := Record{Approval: strings.TrimSpace(health.Annotations[v1alpha1.AnnotationApproveCollection])}
	if health.Status.Collector != nil {
		r.Status = *health.Status.Collector
	}
	return r, nil
}

func (l HealthLedger) get(ctx context.Context, entry string) (*v1alpha1.ProviderHealth, error) {
	health := &v1alpha1.ProviderHealth{}
	err := l.Live.Get(ctx, client.ObjectKey{Name: entry}, health)
	if apierrors.IsNotFound(err) {
		return nil, ErrNoRecord
	}
	return health, err
}

// Save writes the collector's part of the ProviderHealth, and its condition, where they changed.
func (l HealthLedger) Save(ctx context.Context, entry string, status v1alpha1.CollectorStatus) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		stored, err := l.get(ctx, entry)
		if err != nil {
			return err
		}
		next := stored.DeepCopy()
		next.Status.Collector = &status
		if equality.Semantic.DeepEqual(status, v1alpha1.CollectorStatus{}) {
			next.Status.Collector = nil
		}
		show(&next.Status.Conditions, entry, status.Stopped, l.Now())
		if equality.Semantic.DeepEqual(stored.Status, next.Status) {
			return nil
		}
		return l.Writer.Status().Patch(ctx, next, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{}))
	})
}

// show sets the condition CollectorStopped, or takes it away.
func show(conditions *[]metav1.Condition, entry string, stop *v1alpha1.CollectorStop, now time.Time) {
	if stop == nil {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionCollectorStopped)
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionCollectorStopped, Status: metav1.ConditionTrue, Reason: stop.Reason, Message: explain(entry, *stop),
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
}

// shownNames is how many instances a message names.
const shownNames = 3

// explain says what a stop is about, and what to do.
func explain(entry string, stop v1alpha1.CollectorStop) string {
	why := fmt.Sprintf("at most %d are removed in 24 hours unasked (%d were)", stop.Allowed, stop.Removed)
	if stop.Reason == v1alpha1.ReasonNoProxies {
		why = "the API lists no Proxy at all"
	}
	named := strings.Join(stop.Names[:min(len(stop.Names), shownNames)], ", ")
	if more := int(stop.Instances) - min(len(stop.Names), shownNames); more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("nothing of entry %s is removed: %d instances have no Proxy, and %s: %s. If Proxies were lost, restore them. If the instances shall go: "+
		"kubectl annotate --overwrite providerhealth %s %s=%s", entry, stop.Instances, why, named, entry, v1alpha1.AnnotationApproveCollection, stop.Token)
}

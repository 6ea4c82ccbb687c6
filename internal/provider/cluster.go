// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"fmt"
	"regexp"
)

var clusterPattern = regexp.MustCompile(`^[a-z0-9]{6,32}$`)

// CheckCluster refuses a cluster ID that is not 6 to 32 of a-z and 0-9: it stands in marks and names, next to other parts.
func CheckCluster(id string) error {
	if clusterPattern.MatchString(id) {
		return nil
	}
	return fmt.Errorf("cluster ID %q: must be 6 to 32 characters, each a-z or 0-9", id)
}

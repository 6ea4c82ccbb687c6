// SPDX-License-Identifier: Apache-2.0

// Package providerhealth keeps one ProviderHealth for each entry of the providers file, and has the hosts hold the images that their entry
// names. It asks no host how it is: providers look at their hosts by themselves, and this tells what they saw, on change only.
package providerhealth

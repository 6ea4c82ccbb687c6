package kvmhost

import "testing"

// Require fails the test, with one sentence that says what to do, on a machine that cannot have a host.
func Require(t testing.TB) {
	t.Helper()
	if err := Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Up brings up host n for the test. The host outlives the test, for the next one to use: Down ends it.
func Up(t testing.TB, n int) *Host {
	t.Helper()
	host, err := Start(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// Images returns the paths of the guest images, and builds them first, for minutes, where the cache has none.
func Images(t testing.TB) (tiny, cloud, empty string) {
	t.Helper()
	images, err := BuildImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return images.Tiny, images.Cloud, images.Empty
}

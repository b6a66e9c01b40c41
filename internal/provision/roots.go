package provision

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
)

// rootsPath is repld's own copy of the authority that a server is verified by.
func rootsPath(dataDir, cluster, server string) string {
	return filepath.Join(dataDir, "ca", "servers", cluster, server, "ca.pem")
}

// saveRoots keeps the authority of a server, the user's as well as repld's.
func saveRoots(dataDir, cluster, server string, pem []byte) error {
	path := rootsPath(dataDir, cluster, server)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("authority of %s: %w", server, err)
	}
	return writeFile(path, pem, 0o600)
}

// RootsOf is the authority by which repld verifies a server that was set up by
// this package.
func RootsOf(dataDir, cluster, server string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(rootsPath(dataDir, cluster, server))
	if err != nil {
		return nil, fmt.Errorf("authority of %s: %w", server, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authority of %s: no certificate in %s", server, rootsPath(dataDir, cluster, server))
	}
	return pool, nil
}

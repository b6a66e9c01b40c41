package provision

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

// How long certificates are valid. A private authority has nobody to be
// compromised but repld's own host, and an end at night is the greater danger;
// a server's certificate is renewed by init or adopt within renewBefore of it.
const (
	authorityLife   = 20 * 365 * 24 * time.Hour
	certificateLife = 10 * 365 * 24 * time.Hour
)

// Authority is repld's own: it signs the certificates of all managed servers.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is the authority's certificate.
	PEM []byte
}

// Material is a server's certificate with its key, as PEM.
type Material struct {
	CA, Cert, Key []byte
	NotAfter      time.Time
}

// OpenAuthority loads the authority from dataDir/ca, or makes it. The folder is
// 0700 and the key 0600.
func OpenAuthority(dataDir string, now time.Time) (*Authority, error) {
	a := &Authority{dir: filepath.Join(dataDir, "ca")}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	certPEM, err := os.ReadFile(filepath.Join(a.dir, "ca.pem"))
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.create(now)
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	keyPEM, err := os.ReadFile(filepath.Join(a.dir, "ca-key.pem"))
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	a.PEM = certPEM
	if a.cert, a.key, err = parsePair(certPEM, keyPEM); err != nil {
		return nil, fmt.Errorf("certificate authority in %s: %w", a.dir, err)
	}
	return a, nil
}

// create makes the pair. The key is written first: a certificate without its
// key would look like a whole authority to the next start.
func (a *Authority) create(now time.Time) error {
	key, keyPEM, err := newKey()
	if err != nil {
		return err
	}
	serial, err := newSerial()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("repld authority %x", serial.Bytes()[:4])},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	if err := writeFile(filepath.Join(a.dir, "ca-key.pem"), keyPEM, 0o600); err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := writeFile(filepath.Join(a.dir, "ca.pem"), a.PEM, 0o644); err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	a.cert, a.key, err = parsePair(a.PEM, keyPEM)
	return err
}

// Pool holds the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Names are what a server's certificate is good for: the host of its address,
// its host name, and the loopback only if the address is one.
func Names(host, hostname string) []string {
	out := []string{host}
	add := func(n string) {
		if n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	add(hostname)
	if isLoopback(host) {
		add("127.0.0.1")
		add("::1")
		add("localhost")
	}
	return out
}

// Issue gives a server's material: the one issued before, if it is still good
// for all names and long enough, or a new one. It is kept in the authority's
// folder under the server's name, so that an interrupted delivery delivers the
// same again.
func (a *Authority) Issue(cluster, server string, names []string, now time.Time) (Material, error) {
	dir := filepath.Join(a.dir, "servers", cluster, server)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Material{}, fmt.Errorf("certificate of %s: %w", server, err)
	}
	certPEM, certErr := os.ReadFile(filepath.Join(dir, "cert.pem"))
	keyPEM, keyErr := os.ReadFile(filepath.Join(dir, "key.pem"))
	if certErr == nil && keyErr == nil {
		if cert, _, err := parsePair(certPEM, keyPEM); err == nil && a.good(cert, names, now) {
			return Material{CA: a.PEM, Cert: certPEM, Key: keyPEM, NotAfter: cert.NotAfter}, nil
		}
	}
	m, err := a.sign(names, now)
	if err != nil {
		return Material{}, fmt.Errorf("certificate of %s: %w", server, err)
	}
	for name, text := range map[string][]byte{"key.pem": m.Key, "cert.pem": m.Cert, "ca.pem": m.CA} {
		if err := writeFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return Material{}, fmt.Errorf("certificate of %s: %w", server, err)
		}
	}
	return m, nil
}

// folderOf is where a server's material is kept.
func (a *Authority) folderOf(cluster, server string) string {
	return filepath.Join(a.dir, "servers", cluster, server)
}

// good tells whether a certificate is this authority's and will do.
func (a *Authority) good(cert *x509.Certificate, names []string, now time.Time) bool {
	if cert.CheckSignatureFrom(a.cert) != nil || cert.NotAfter.Sub(now) <= renewBefore || now.Before(cert.NotBefore) {
		return false
	}
	return !slices.ContainsFunc(names, func(n string) bool { return cert.VerifyHostname(n) != nil })
}

func (a *Authority) sign(names []string, now time.Time) (Material, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return Material{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return Material{}, err
	}
	end := now.Add(certificateLife)
	if end.After(a.cert.NotAfter) {
		end = a.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: strings.Trim(names[0], "[]")},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature,
		// Both uses: a master is a slave one day, and then a client.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, n)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Material{}, err
	}
	return Material{CA: a.PEM, Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM, NotAfter: end}, nil
}

// newKey makes a P-256 key, in the form that all TLS libraries of servers read.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func newSerial() (*big.Int, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return nil, err
	}
	raw[0] = raw[0]&0x7f | 0x40 // positive, and never short
	return new(big.Int).SetBytes(raw), nil
}

func parsePair(certPEM, keyPEM []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, nil, errors.New("the key is no PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, fmt.Errorf("the key is a %T, not ECDSA", parsed)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, errors.New("the key does not belong to the certificate")
	}
	return cert, key, nil
}

func parseCertificate(certPEM []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(bytes.TrimSpace(certPEM))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// writeFile replaces a file atomically and durably.
func writeFile(path string, text []byte, mode os.FileMode) error {
	return renameio.WriteFile(path, text, mode, renameio.WithStaticPermissions(mode))
}

package topology

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The layout of bbolt's two meta pages, format version 2: a page header, then
// magic, version, page size, flags, root (16 bytes), freelist, high-water mark,
// transaction and, over all of these, an FNV-1a checksum.
const (
	metaMagic    = 0xED0CDAED
	pageHeader   = 16
	metaSum      = 56 // where the checksum is
	metaLength   = metaSum + 8
	metaPageSize = 8 // where the page size is
)

// checkMetas makes sure that both meta pages are sound. bbolt opens a file with
// one sound page and then shows the state before the last change: an older
// truth, for example one without the opening that was just sent. A crash leaves
// no such page, since what bbolt writes there is less than one sector.
func checkMetas(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	defer f.Close()
	first, err := readMeta(f, 0)
	if err != nil {
		return err
	}
	_, err = readMeta(f, int64(binary.NativeEndian.Uint32(first[metaPageSize:])))
	return err
}

func readMeta(f io.ReaderAt, at int64) ([]byte, error) {
	meta := make([]byte, metaLength)
	if _, err := f.ReadAt(meta, at+pageHeader); err != nil {
		return nil, fmt.Errorf("meta page at %d: %w: %w", at, ErrDamaged, err)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:metaSum])
	if binary.NativeEndian.Uint32(meta) != metaMagic || binary.NativeEndian.Uint64(meta[metaSum:]) != sum.Sum64() {
		return nil, fmt.Errorf("meta page at %d does not match its checksum: %w", at, ErrDamaged)
	}
	return meta, nil
}

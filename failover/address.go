package failover

import (
	"strconv"
	"strings"
)

// splitAddress splits host:port, taking the brackets off an IPv6 host; port 0
// if there is none. (Package net is left out of the decision on purpose.)
func splitAddress(address string) (host string, port uint16) {
	i := strings.LastIndexByte(address, ':')
	if i < 0 {
		return address, 0
	}
	n, err := strconv.ParseUint(address[i+1:], 10, 16)
	if err != nil {
		return address, 0
	}
	return strings.Trim(address[:i], "[]"), uint16(n)
}

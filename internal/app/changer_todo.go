package app

import (
	"context"
	"errors"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/provision"
)

func (ch *changer) Adopt(ctx context.Context, cluster string, r api.AdoptRequest, p api.Progress) (*api.Result, error) {
	return nil, errors.New("todo")
}
func (ch *changer) Remove(ctx context.Context, cluster string, r api.RemoveRequest, p api.Progress) (*api.Result, error) {
	return nil, errors.New("todo")
}
func (ch *changer) Rejoin(ctx context.Context, cluster string, r api.RejoinRequest, p api.Progress) (*api.Result, error) {
	return nil, errors.New("todo")
}
func (ch *changer) initSlave(ctx context.Context, cluster string, r api.InitRequest, p api.Progress) (*api.Result, error) {
	return nil, errors.New("todo")
}
func (ch *changer) reseed(ctx context.Context, cluster, server string, progress provision.ProgressFunc) error {
	return errors.New("todo")
}

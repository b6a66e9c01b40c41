package api

import (
	"context"

	"github.com/repld/repld/internal/fault"
)

// Reader is what repld can be asked. It answers from memory and never waits for
// a server. Its errors, as those of [Changer], are *fault.Error, or become one of
// kind Failed; a cluster's name has been checked for its form only.
type Reader interface {
	// Status describes a cluster; before any init, the default cluster without
	// servers. An unknown cluster is a fault of kind Usage.
	Status(ctx context.Context, cluster string) (*Status, error)
	// History lists the newest operations first, at most limit of them.
	History(ctx context.Context, cluster string, limit int) ([]Operation, error)
	// Explain says why a server can or cannot be promoted; with an empty name, whether
	// a failover would begin.
	Explain(ctx context.Context, cluster, server string) (*Explanation, error)
	// Operation is one of them; an unknown id is a fault of kind Usage.
	Operation(ctx context.Context, cluster, id string) (*Operation, error)
}

// Changer is what repld can be told to do. A dry run must honour its context at
// once; a real change gets a context that ends only when repld stops. Every
// change is refused (kind Refused) before it is asked to be confirmed (kind
// Unconfirmed), and in the state that it aims at it changes nothing and
// succeeds. p may be called until the method returns, by one goroutine at a time.
type Changer interface {
	// Init makes a server a cluster's master, or a slave if the request says so.
	Init(ctx context.Context, cluster string, r InitRequest, p Progress) (*Result, error)
	// Adopt takes over a server that already replicates, or a promotion that was
	// made by hand.
	Adopt(ctx context.Context, cluster string, r AdoptRequest, p Progress) (*Result, error)
	// Remove forgets a server.
	Remove(ctx context.Context, cluster string, r RemoveRequest, p Progress) (*Result, error)
	// Pause forbids automatic action, Resume allows it again.
	Pause(ctx context.Context, cluster string, r PauseRequest, p Progress) (*Result, error)
	Resume(ctx context.Context, cluster string, r ResumeRequest, p Progress) (*Result, error)
	// Stop stops a slave's threads for a person, Start starts them again.
	Stop(ctx context.Context, cluster string, r StopRequest, p Progress) (*Result, error)
	Start(ctx context.Context, cluster string, r StartRequest, p Progress) (*Result, error)
	// Maintenance takes a slave out of service, or back into it.
	Maintenance(ctx context.Context, cluster string, r MaintenanceRequest, p Progress) (*Result, error)
	// Restart restarts a server in order.
	Restart(ctx context.Context, cluster string, r RestartRequest, p Progress) (*Result, error)
	// Durability changes what commits wait for.
	Durability(ctx context.Context, cluster string, r DurabilityRequest, p Progress) (*Result, error)
	// Switchover replaces a live master, or leaves it the master.
	Switchover(ctx context.Context, cluster string, r SwitchoverRequest, p Progress) (*Result, error)
	// Failover replaces a lost master.
	Failover(ctx context.Context, cluster string, r FailoverRequest, p Progress) (*Result, error)
	// Rejoin brings a former master or broken slave back as a slave.
	Rejoin(ctx context.Context, cluster string, r RejoinRequest, p Progress) (*Result, error)
}

// UnknownCluster is the fault for a cluster that does not exist.
func UnknownCluster(name string) error {
	return &fault.Error{Kind: fault.Usage, Code: "unknown_cluster", What: "there is no cluster " + name,
		Cause: "no server was ever added to it", State: "nothing was changed",
		Do: "check --cluster, or begin it with: replctl --cluster " + name + " init master NAME --address HOST:PORT"}
}

// UnknownOperation is the fault for an entry of the history that does not exist.
func UnknownOperation(id string) error {
	return &fault.Error{Kind: fault.Usage, Code: "unknown_operation", What: "the history has no entry " + id,
		Cause: "it is unknown in this cluster, or too old", State: "nothing was changed", Do: "replctl history"}
}

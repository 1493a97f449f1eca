// A member of a group that copies a topic exactly once, with franz-go; says what copiers/librdkafka.py says.
//
// with_franz_go BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	batch         = 200
	failuresMax   = 100
	pause         = 100 * time.Millisecond
	failedForGood = 3
)

func say(word string, about any) {
	fmt.Println(word, strings.ReplaceAll(fmt.Sprint(about), "\n", " "))
}

// newSession takes its predecessor's place in the group, as the static member that it is, and in the transactional id.
func newSession(bootstrap, source, group, name string) *kgo.GroupTransactSession {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ClientID(name),
		kgo.TransactionalID(name), kgo.TransactionTimeout(20*time.Second), kgo.ConsumerGroup(group), kgo.InstanceID(name),
		kgo.ConsumeTopics(source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(pause))
	if err != nil {
		say("ended", err)
		os.Exit(failedForGood)
	}
	// Now and not with the first record, for its offsets stay unstable until what the predecessor left open is aborted.
	for {
		_, _, err := session.Client().ProducerID(context.Background())
		if err == nil {
			return session
		}
		say("failed", err)
		time.Sleep(pause)
	}
}

// copyBatch returns whether its transaction was committed. Without an error it was aborted, and is read again.
func copyBatch(session *kgo.GroupTransactSession, records []*kgo.Record, target string) (bool, error) {
	if err := session.Begin(); err != nil {
		return false, err
	}
	promise := kgo.AbortingFirstErrPromise(session.Client())
	for _, record := range records {
		copied := &kgo.Record{Topic: target, Partition: record.Partition, Value: record.Value}
		session.Produce(context.Background(), copied, promise.Promise())
	}
	return session.End(context.Background(), promise.Err() == nil)
}

func main() {
	bootstrap, source, target, group, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	session := newSession(bootstrap, source, group, name)
	fmt.Println("ready")
	for failures := 0; failures < failuresMax; {
		fetches := session.PollRecords(context.Background(), batch)
		for _, failure := range fetches.Errors() {
			say("failed", failure.Err)
		}
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		committed, err := copyBatch(session, records, target)
		if committed {
			say("committed", len(records))
			failures = 0
			continue
		}
		say("failed", err)
		failures++
		if err != nil {
			// The transaction may still be open, and a coordinator that refuses connections is not looked up anew: only another
			// session ends the one and finds the other.
			session.Client().Close()
			time.Sleep(pause)
			session = newSession(bootstrap, source, group, name)
		}
	}
	say("ended", "after too many failures")
	os.Exit(failedForGood)
}

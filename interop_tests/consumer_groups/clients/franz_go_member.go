// One member of a group of the consumer protocol on franz-go, as members.py describes it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type settings struct {
	Bootstrap, Group, Client, Topic, Regex, Assignor, Instance string
}

type command struct {
	Do, How string
	Offsets map[int32]int64
}

type state struct {
	Owned []string           `json:"owned"`
	Read  map[string][]int64 `json:"read"`
	Error *string            `json:"error"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func place(topic string, partition int32) string { return fmt.Sprintf("%s-%d", topic, partition) }

// commitDone passes on the first error of a commit.
func commitDone(done chan<- error) func(*kgo.Client, *kmsg.OffsetCommitRequest, *kmsg.OffsetCommitResponse, error) {
	return func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		if err == nil {
			for _, topic := range response.Topics {
				for _, partition := range topic.Partitions {
					if failure := kerr.ErrorForCode(partition.ErrorCode); err == nil {
						err = failure
					}
				}
			}
		}
		done <- err
	}
}

func main() {
	var wanted settings
	check(json.Unmarshal([]byte(os.Args[1]), &wanted))
	var lock sync.Mutex
	owned := map[string]bool{}
	read := map[string][]int64{}
	var failed *string
	change := func(isOwned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			lock.Lock()
			defer lock.Unlock()
			for topic, partitions := range changed {
				for _, partition := range partitions {
					if isOwned {
						owned[place(topic, partition)] = true
					} else {
						delete(owned, place(topic, partition))
					}
				}
			}
		}
	}
	// This release has the protocol behind a key of the context. The balancer chooses the assignor: sticky stands for uniform.
	ctx := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	balancer := kgo.StickyBalancer()
	if wanted.Assignor == "range" {
		balancer = kgo.RangeBalancer()
	}
	options := []kgo.Opt{kgo.WithContext(ctx), kgo.SeedBrokers(wanted.Bootstrap), kgo.ClientID(wanted.Client),
		kgo.ConsumerGroup(wanted.Group), kgo.Balancers(balancer), kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(50 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false))}
	if wanted.Regex != "" {
		options = append(options, kgo.ConsumeTopics(wanted.Regex), kgo.ConsumeRegex())
	} else {
		options = append(options, kgo.ConsumeTopics(wanted.Topic))
	}
	if wanted.Instance != "" {
		options = append(options, kgo.InstanceID(wanted.Instance))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	go func() {
		for {
			fetches := client.PollFetches(ctx)
			if fetches.IsClientClosed() {
				return
			}
			lock.Lock()
			// On a new cluster this client tells that there is no coordinator yet, and goes on.
			if err := fetches.Err(); err != nil && !kerr.IsRetriable(err) {
				text := err.Error()
				failed = &text
			}
			fetches.EachRecord(func(record *kgo.Record) {
				name := place(record.Topic, record.Partition)
				read[name] = append(read[name], record.Offset)
			})
			lock.Unlock()
		}
	}()
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		var asked command
		check(json.Unmarshal(commands.Bytes(), &asked))
		switch asked.Do {
		case "forget":
			lock.Lock()
			clear(read)
			lock.Unlock()
		case "commit":
			offsets := map[int32]kgo.EpochOffset{}
			for partition, offset := range asked.Offsets {
				offsets[partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
			}
			uncommitted := map[string]map[int32]kgo.EpochOffset{wanted.Topic: offsets}
			done := make(chan error, 1)
			if asked.How == "sync" {
				client.CommitOffsetsSync(ctx, uncommitted, commitDone(done))
			} else {
				client.CommitOffsets(ctx, uncommitted, commitDone(done))
			}
			check(<-done)
		case "close":
			client.Close()
		}
		lock.Lock()
		seen := state{Owned: []string{}, Read: read, Error: failed}
		for name := range owned {
			seen.Owned = append(seen.Owned, name)
		}
		check(json.NewEncoder(os.Stdout).Encode(seen))
		lock.Unlock()
		if asked.Do == "close" {
			return
		}
	}
}

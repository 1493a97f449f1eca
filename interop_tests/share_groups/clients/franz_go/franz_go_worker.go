// One member of a share group on franz-go, as workers.py describes it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type settings struct {
	Bootstrap, Group, Client, Topic, Mode, Records, Acquire string
}

type command struct {
	Do, How, Type string
	Ms            int
	Records       [][2]int64
}

type answer struct {
	Records [][4]any           `json:"records"`
	Outcome map[string]*string `json:"outcome"`
	Error   *string            `json:"error"`
}

var types = map[string]kgo.AckStatus{
	"accept": kgo.AckAccept, "release": kgo.AckRelease, "reject": kgo.AckReject, "renew": kgo.AckRenew,
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var wanted settings
	check(json.Unmarshal([]byte(os.Args[1]), &wanted))
	var lock sync.Mutex
	outcome := map[string]*string{}
	options := []kgo.Opt{kgo.SeedBrokers(wanted.Bootstrap), kgo.ClientID(wanted.Client), kgo.ShareGroup(wanted.Group),
		kgo.ConsumeTopics(wanted.Topic), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			lock.Lock()
			defer lock.Unlock()
			for _, result := range results {
				var text *string
				if result.Err != nil {
					name := result.Err.Error()
					var of *kerr.Error
					if errors.As(result.Err, &of) {
						name = of.Message
					}
					text = &name
				}
				outcome[fmt.Sprintf("%s-%d", result.Topic, result.Partition)] = text
			}
		})}
	if wanted.Records != "" {
		count, err := strconv.Atoi(wanted.Records)
		check(err)
		options = append(options, kgo.ShareMaxRecords(int32(count)))
	}
	if wanted.Acquire == "record_limit" {
		options = append(options, kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(options...)
	check(err)
	held := map[[2]int64]*kgo.Record{}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		var asked command
		check(json.Unmarshal(commands.Bytes(), &asked))
		lock.Lock()
		outcome = map[string]*string{}
		lock.Unlock()
		said := answer{Records: [][4]any{}}
		fail := func(err error) {
			text := err.Error()
			said.Error = &text
		}
		switch asked.Do {
		case "poll":
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(asked.Ms)*time.Millisecond)
			fetches := client.PollFetches(ctx)
			cancel()
			// On a new cluster this client tells that there is no coordinator yet, and goes on.
			if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) && !kerr.IsRetriable(err) {
				fail(err)
			}
			fetches.EachRecord(func(record *kgo.Record) {
				held[[2]int64{int64(record.Partition), record.Offset}] = record
				said.Records = append(said.Records,
					[4]any{record.Partition, record.Offset, record.DeliveryCount(), string(record.Value)})
			})
		case "acknowledge":
			for _, each := range asked.Records {
				client.MarkAcks(types[asked.Type], held[each])
			}
		case "commit":
			if err := client.FlushAcks(context.Background()); err != nil {
				fail(err)
			}
		case "close":
			client.Close()
		}
		lock.Lock()
		said.Outcome = outcome
		check(json.NewEncoder(os.Stdout).Encode(said))
		lock.Unlock()
		if asked.Do == "close" {
			return
		}
	}
}

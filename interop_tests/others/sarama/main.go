// Sarama against a broker, speaking the message versions of one Kafka release: it pins them by its configured version
// and does not negotiate. What it saw goes to stdout as one JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	timeLimit  = 60 * time.Second
	partitions = 4
	perCodec   = 20
	start      = int64(1_600_000_000_000)
)

type result map[string]any

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// configured is a configuration for the release, or for the newest one that this Sarama knows.
func configured(release string) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "interop-sarama"
	config.Version = sarama.MaxVersion
	if release != "newest" {
		version, err := sarama.ParseKafkaVersion(release)
		check(err)
		config.Version = version
	}
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Group.Rebalance.Retry.Backoff = 300 * time.Millisecond
	config.Metadata.Retry.Backoff = 50 * time.Millisecond
	secure(config)
	return config
}

func until(what string, holds func() bool) {
	for deadline := time.Now().Add(timeLimit / 2); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			check(fmt.Errorf("still waiting until %s", what))
		}
	}
}

func send(bootstrap, release, topic, label string, from int64, change func(*sarama.Config)) int {
	config := configured(release)
	change(config)
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	check(err)
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for n := 0; n < perCodec; n++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic:     topic,
			Key:       sarama.StringEncoder(fmt.Sprintf("%s-%d", label, n)),
			Value:     sarama.StringEncoder(strings.Repeat(fmt.Sprintf("%s %d ", label, n), 10)),
			Headers:   []sarama.RecordHeader{{Key: []byte("label"), Value: []byte(label)}},
			Timestamp: time.UnixMilli(from + int64(n)),
		})
	}
	check(producer.SendMessages(messages))
	return len(messages)
}

type member struct {
	lock    sync.Mutex
	claimed []int32
	records []result
	cancel  context.CancelFunc
	done    chan struct{}
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claimed = []int32{}
	for _, claims := range session.Claims() {
		m.claimed = append(m.claimed, claims...)
	}
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claimed = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	var pending []result
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			headers := map[string]string{}
			for _, header := range message.Headers {
				headers[string(header.Key)] = string(header.Value)
			}
			session.MarkMessage(message, "as far as "+strconv.FormatInt(message.Offset, 10))
			pending = append(pending, result{"key": string(message.Key), "value": string(message.Value),
				"headers": headers, "partition": message.Partition, "offset": message.Offset,
				"timestamp": message.Timestamp.UnixMilli()})
			if message.Offset+1 == claim.HighWaterMarkOffset() {
				// Counted once committed: a rebalance before that would bring them to the next owner again.
				// One commit at a time: Sarama 1.41 sends them in any order, and the older one would win.
				m.lock.Lock()
				session.Commit()
				m.records = append(m.records, pending...)
				m.lock.Unlock()
				pending = nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) owned() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	owned := append([]int32{}, m.claimed...)
	sort.Slice(owned, func(a, b int) bool { return owned[a] < owned[b] })
	return owned
}

func (m *member) read() []result {
	m.lock.Lock()
	defer m.lock.Unlock()
	return append([]result{}, m.records...)
}

func join(bootstrap, release, topic, name string) *member {
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{cancel: cancel, done: make(chan struct{})}
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, name, configured(release))
	check(err)
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{topic}, m); err != nil && !errors.Is(err, context.Canceled) {
				check(err)
			}
		}
		check(group.Close())
	}()
	return m
}

func (m *member) leave() {
	m.cancel()
	<-m.done
}

// everything goes through what a program asks of Sarama: a topic, records, a group, its offsets, the topic's own.
func everything(bootstrap, release, topic, name string) result {
	config := configured(release)
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config)
	check(err)
	defer admin.Close()
	retention := "-1"
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &retention}}
	check(admin.CreateTopic(topic, detail, false))
	again := admin.CreateTopic(topic, detail, false)
	check(admin.CreatePartitions(topic, partitions, nil, false))
	client, err := sarama.NewClient([]string{bootstrap}, config)
	check(err)
	defer client.Close()
	until("all partitions have leaders", func() bool {
		check(client.RefreshMetadata(topic))
		writable, err := client.WritablePartitions(topic)
		return err == nil && len(writable) == partitions
	})

	written := 0
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4}
	if config.Version.IsAtLeast(sarama.V2_1_0_0) {
		codecs = append(codecs, sarama.CompressionZSTD)
	}
	labels := []string{}
	for _, codec := range codecs {
		at := start + int64(written)
		written += send(bootstrap, release, topic, codec.String(), at, func(config *sarama.Config) { config.Producer.Compression = codec })
		labels = append(labels, codec.String())
	}
	written += send(bootstrap, release, topic, "idempotent", start+int64(written), func(config *sarama.Config) {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	})
	labels = append(labels, "idempotent")

	first := join(bootstrap, release, topic, name)
	until("the first member has read everything", func() bool { return len(first.read()) == written })
	second := join(bootstrap, release, topic, name)
	until("two members share", func() bool { return len(first.owned()) == partitions/2 && len(second.owned()) == partitions/2 })
	shared := [][]int32{first.owned(), second.owned()}
	written += send(bootstrap, release, topic, "shared", start+int64(written), func(config *sarama.Config) {})
	labels = append(labels, "shared")
	until("the two members have read the rest", func() bool { return len(first.read())+len(second.read()) >= written })
	described, err := admin.DescribeConsumerGroups([]string{name})
	check(err)
	state := described[0].State
	second.leave()
	first.leave()
	records := append(first.read(), second.read()...)

	fetched, err := admin.ListConsumerGroupOffsets(name, map[string][]int32{topic: {0, 1, 2, 3}})
	check(err)
	committed, metadata := map[string]int64{}, map[string]string{}
	oldest, newest, middle := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for partition := int32(0); partition < partitions; partition++ {
		id := strconv.Itoa(int(partition))
		block := fetched.GetBlock(topic, partition)
		check(errorOf(block.Err))
		committed[id], metadata[id] = block.Offset, block.Metadata
		for at, found := range map[int64]map[string]int64{sarama.OffsetOldest: oldest, sarama.OffsetNewest: newest, start + int64(written)/2: middle} {
			found[id], err = client.GetOffset(topic, partition, at)
			check(err)
		}
	}
	groups, err := admin.ListConsumerGroups()
	check(err)
	settings, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	check(err)
	check(admin.DeleteRecords(topic, map[int32]int64{0: 3}))
	trimmed, err := client.GetOffset(topic, 0, sarama.OffsetOldest)
	check(err)
	check(admin.DeleteConsumerGroup(name))
	check(admin.DeleteTopic(topic))
	return result{"pinned": config.Version.String(), "again": errors.Is(again, sarama.ErrTopicAlreadyExists), "labels": labels,
		"written": written, "shared": shared, "state": state, "records": records, "group_type": groups[name], "committed": committed,
		"metadata": metadata, "oldest": oldest, "newest": newest, "middle": middle, "trimmed": trimmed,
		"retention": settings[0].Value}
}

func errorOf(code sarama.KError) error {
	if code == sarama.ErrNoError {
		return nil
	}
	return code
}

// produce writes one record and says how that went.
func produce(bootstrap, release, topic string) result {
	config := configured(release)
	config.Producer.Retry.Max = 0
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err == nil {
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("one")})
		producer.Close()
	}
	return result{"pinned": config.Version.String(), "error": fmt.Sprint(err)}
}

func main() {
	scenario, bootstrap, release, topic := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	time.AfterFunc(timeLimit, func() { check(errors.New("out of time")) })
	var seen result
	switch scenario {
	case "everything":
		seen = everything(bootstrap, release, topic, os.Args[5])
	case "produce":
		seen = produce(bootstrap, release, topic)
	default:
		check(fmt.Errorf("no scenario %q", scenario))
	}
	check(json.NewEncoder(os.Stdout).Encode(seen))
}

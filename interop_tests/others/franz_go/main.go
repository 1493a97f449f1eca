// The franz-go client against a broker, one scenario a run; what it saw goes to stdout as one JSON object.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const timeLimit = 60 * time.Second

type result map[string]any

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// security is what the environment asks for: KAFKA_CA, KAFKA_MECHANISM, KAFKA_USER, KAFKA_PASSWORD, KAFKA_TOKEN.
func security() []kgo.Opt {
	var options []kgo.Opt
	if file := os.Getenv("KAFKA_CA"); file != "" {
		pem, err := os.ReadFile(file)
		check(err)
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(pem)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: authorities}))
	}
	user, password := os.Getenv("KAFKA_USER"), os.Getenv("KAFKA_PASSWORD")
	switch mechanism := os.Getenv("KAFKA_MECHANISM"); mechanism {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Auth{Token: os.Getenv("KAFKA_TOKEN")}.AsMechanism()))
	default:
		check(fmt.Errorf("no mechanism %q", mechanism))
	}
	return options
}

func connect(bootstrap string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(append(options, security()...), kgo.SeedBrokers(bootstrap))...)
	check(err)
	return client
}

// read polls until so many records came.
func read(ctx context.Context, client *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// produceAndRead writes records of every codec with keys and headers, and reads them back.
func produceAndRead(ctx context.Context, bootstrap, topic string) result {
	names := make([]string, 0, len(codecs))
	for name := range codecs {
		names = append(names, name)
	}
	sort.Strings(names)
	written := 0
	for _, name := range names {
		client := connect(bootstrap, kgo.ProducerBatchCompression(codecs[name]), kgo.DefaultProduceTopic(topic))
		var records []*kgo.Record
		for n := 0; n < 20; n++ {
			records = append(records, &kgo.Record{
				Key:     []byte(fmt.Sprintf("%s-%d", name, n)),
				Value:   []byte(strings.Repeat(fmt.Sprintf("%s %d ", name, n), 10)),
				Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}, {Key: "n", Value: []byte(strconv.Itoa(n))}},
			})
		}
		for _, produced := range client.ProduceSync(ctx, records...) {
			check(produced.Err)
			written++
		}
		client.Close()
	}
	client := connect(bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	seen := []result{}
	for _, record := range read(ctx, client, written) {
		headers := map[string]string{}
		for _, header := range record.Headers {
			headers[header.Key] = string(header.Value)
		}
		seen = append(seen, result{"key": string(record.Key), "value": string(record.Value), "headers": headers,
			"partition": record.Partition, "offset": record.Offset})
	}
	return result{"written": written, "records": seen}
}

type member struct {
	lock     sync.Mutex
	assigned map[int32]bool
	offsets  map[string]int
	client   *kgo.Client
	done     chan struct{}
}

func (m *member) partitions() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	owned := []int32{}
	for partition := range m.assigned {
		owned = append(owned, partition)
	}
	sort.Slice(owned, func(a, b int) bool { return owned[a] < owned[b] })
	return owned
}

func join(ctx context.Context, bootstrap, topic, group string, balancer kgo.GroupBalancer) *member {
	m := &member{assigned: map[int32]bool{}, offsets: map[string]int{}, done: make(chan struct{})}
	change := func(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			m.lock.Lock()
			defer m.lock.Unlock()
			for _, partition := range changed[topic] {
				if owned {
					m.assigned[partition] = true
				} else {
					delete(m.assigned, partition)
				}
			}
		}
	}
	m.client = connect(bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.Balancers(balancer),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.AutoCommitInterval(200*time.Millisecond), kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)))
	go func() {
		defer close(m.done)
		for {
			fetches := m.client.PollFetches(ctx)
			if fetches.IsClientClosed() || ctx.Err() != nil {
				return
			}
			m.lock.Lock()
			fetches.EachRecord(func(record *kgo.Record) {
				m.offsets[fmt.Sprintf("%d:%d", record.Partition, record.Offset)]++
			})
			m.lock.Unlock()
		}
	}()
	return m
}

func (m *member) leave() {
	check(m.client.CommitUncommittedOffsets(context.Background()))
	m.client.Close()
	<-m.done
}

// until waits for a condition and ends the program when the time is up.
func until(ctx context.Context, what string, holds func() bool) {
	for !holds() {
		select {
		case <-ctx.Done():
			check(fmt.Errorf("still waiting until %s", what))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func writeNumbers(ctx context.Context, bootstrap, topic string, partitions, from, to int) {
	client := connect(bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	var records []*kgo.Record
	for n := from; n < to; n++ {
		for partition := 0; partition < partitions; partition++ {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(partition),
				Value: []byte(strconv.Itoa(n))})
		}
	}
	check(client.ProduceSync(ctx, records...).FirstErr())
}

// group has one member read, a second one join and leave; all partitions stay owned and every record is read.
func group(ctx context.Context, bootstrap, topic, name, balancerName string) result {
	const partitions = 4
	balancer := map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()}[balancerName]
	writeNumbers(ctx, bootstrap, topic, partitions, 0, 10)
	first := join(ctx, bootstrap, topic, name, balancer)
	until(ctx, "the first member owns everything", func() bool { return len(first.partitions()) == partitions })
	alone := first.partitions()
	second := join(ctx, bootstrap, topic, name, balancer)
	until(ctx, "two members share", func() bool {
		return len(first.partitions()) == partitions/2 && len(second.partitions()) == partitions/2
	})
	shared := [][]int32{first.partitions(), second.partitions()}
	writeNumbers(ctx, bootstrap, topic, partitions, 10, 20)
	count := func() int {
		total := map[string]bool{}
		for _, m := range []*member{first, second} {
			m.lock.Lock()
			for offset := range m.offsets {
				total[offset] = true
			}
			m.lock.Unlock()
		}
		return len(total)
	}
	until(ctx, "20 records of each partition are read", func() bool { return count() == 20*partitions })
	readBySecond := len(second.offsets)
	second.leave()
	until(ctx, "the first member owns everything again", func() bool { return len(first.partitions()) == partitions })
	afterwards := first.partitions()
	writeNumbers(ctx, bootstrap, topic, partitions, 20, 30)
	until(ctx, "30 records of each partition are read", func() bool { return count() == 30*partitions })
	first.leave()

	client := connect(bootstrap)
	defer client.Close()
	committed, err := kadm.NewClient(client).FetchOffsets(ctx, name)
	check(err)
	ends := map[string]int64{}
	committed.Each(func(offset kadm.OffsetResponse) { ends[strconv.Itoa(int(offset.Partition))] = offset.At })
	return result{"alone": alone, "shared": shared, "afterwards": afterwards, "read": count(),
		"read_by_second": readBySecond, "committed": ends}
}

// admin creates, describes, alters and deletes a topic, and looks at the cluster and at a group.
func admin(ctx context.Context, bootstrap, topic string) result {
	client := connect(bootstrap)
	defer client.Close()
	administrator := kadm.NewClient(client)
	retention := "7200000"
	created, err := administrator.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, topic)
	check(err)
	again, _ := administrator.CreateTopic(ctx, 2, 1, nil, topic)
	grown, err := administrator.UpdatePartitions(ctx, 5, topic)
	check(err)
	check(grown.Error())
	var details kadm.TopicDetails
	until(ctx, "the topic has five partitions", func() bool {
		details, err = administrator.ListTopics(ctx, topic)
		check(err)
		return len(details[topic].Partitions) == 5
	})
	bytes := "1000000"
	altered, err := administrator.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.bytes", Value: &bytes}}, topic)
	check(err)
	for _, one := range altered {
		check(one.Err)
	}
	settings := map[string]string{}
	var described kadm.ResourceConfigs
	until(ctx, "the broker has taken the settings up", func() bool {
		described, err = administrator.DescribeTopicConfigs(ctx, topic)
		check(err)
		clear(settings)
		for _, setting := range described[0].Configs {
			if setting.Source == kmsg.ConfigSourceDynamicTopicConfig {
				settings[setting.Key] = setting.MaybeValue()
			}
		}
		return settings["retention.bytes"] == bytes
	})
	brokers, err := administrator.ListBrokers(ctx)
	check(err)
	ends, err := administrator.ListEndOffsets(ctx, topic)
	check(err)
	deleted, err := administrator.DeleteTopics(ctx, topic)
	check(err)
	check(deleted.Error())
	until(ctx, "the topic is gone", func() bool {
		left, err := administrator.ListTopics(ctx)
		check(err)
		return !left.Has(topic)
	})
	return result{"id": created.ID.String(), "described_id": details[topic].ID.String(), "again": fmt.Sprint(again.Err),
		"settings": settings, "settings_described": len(described[0].Configs), "brokers": len(brokers), "partitions": len(ends[topic])}
}

// seek writes a record a second of event time and reads from the first one at or after a time.
func seek(ctx context.Context, bootstrap, topic string) result {
	const start = int64(1_600_000_000_000)
	client := connect(bootstrap, kgo.DefaultProduceTopic(topic))
	for n := int64(0); n < 10; n++ {
		record := &kgo.Record{Value: []byte(strconv.FormatInt(n, 10)), Timestamp: time.UnixMilli(start + n*1000)}
		check(client.ProduceSync(ctx, record).FirstErr())
	}
	offsets := map[string]int64{}
	administrator := kadm.NewClient(client)
	for name, at := range map[string]int64{"before": 0, "exact": start + 3000, "between": start + 3001, "after": start + 10000} {
		listed, err := administrator.ListOffsetsAfterMilli(ctx, at, topic)
		check(err)
		offsets[name] = listed[topic][0].Offset
	}
	client.Close()
	reader := connect(bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(start+6500)))
	defer reader.Close()
	values := []string{}
	for _, record := range read(ctx, reader, 3) {
		values = append(values, string(record.Value))
	}
	return result{"offsets": offsets, "values": values}
}

// transact copies a topic into another of the same name with "-copy", five records a transaction, every third aborted; then a
// transactional id is taken over from a producer whose transaction is open.
func transact(ctx context.Context, bootstrap, topic, group, id string) result {
	const count = 40
	target := topic + "-copy"
	feeder := connect(bootstrap)
	defer feeder.Close()
	_, err := kadm.NewClient(feeder).CreateTopic(ctx, 1, 1, nil, target)
	check(err)
	for n := 0; n < count; n++ {
		check(feeder.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(n))}).FirstErr())
	}
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	check(err)
	committed, aborted := 0, 0
	for copied := 0; copied < count; {
		fetches := session.PollRecords(ctx, 5)
		check(fetches.Err())
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		check(session.Begin())
		for _, record := range records {
			session.Produce(ctx, &kgo.Record{Topic: target, Value: record.Value}, nil)
		}
		commit := kgo.TransactionEndTry((committed+aborted)%3 != 2)
		done, err := session.End(ctx, commit)
		check(err)
		if done {
			committed++
			copied += len(records)
		} else {
			aborted++
		}
	}
	session.Close()
	zombie := connect(bootstrap, kgo.TransactionalID(id))
	check(zombie.BeginTransaction())
	check(zombie.ProduceSync(ctx, &kgo.Record{Topic: target, Value: []byte("zombie")}).FirstErr())
	heir := connect(bootstrap, kgo.TransactionalID(id))
	defer heir.Close()
	// The zombie's transaction is being aborted, and this client leaves it to the application to ask again.
	until(ctx, "the transactional id is taken over", func() bool {
		_, _, err := heir.ProducerID(ctx)
		return err == nil
	})
	check(heir.BeginTransaction())
	check(heir.ProduceSync(ctx, &kgo.Record{Topic: target, Value: []byte("heir")}).FirstErr())
	fenced := zombie.EndTransaction(ctx, kgo.TryCommit)
	zombie.CloseAllowingRebalance()
	check(heir.EndTransaction(ctx, kgo.TryCommit))
	reader := connect(bootstrap, kgo.ConsumeTopics(target), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer reader.Close()
	values := []string{}
	for _, record := range read(ctx, reader, count+1) {
		values = append(values, string(record.Value))
	}
	return result{"committed": committed, "aborted": aborted, "values": values, "fenced": fmt.Sprint(fenced)}
}

// pushes counts the answers to pushes of metrics.
type pushes struct{ answered atomic.Int64 }

func (p *pushes) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == kmsg.PushTelemetry.Int16() && e2e.Err() == nil {
		p.answered.Add(1)
	}
}

// telemetry writes and reads single records until the client has pushed its metrics twice (KIP-714). The number of
// written records is a metric of the application (KIP-1076). It waits for two more pushes, because one may be on its way
// when the last record is written. The push of a client that is closed does not leave it.
func telemetry(ctx context.Context, bootstrap, topic, id string) result {
	var written atomic.Int64
	pushed := &pushes{}
	application := func() iter.Seq[kgo.Metric] {
		return slices.Values([]kgo.Metric{{Name: "application.records.written", Type: kgo.MetricTypeSum, ValueInt: written.Load()}})
	}
	client := connect(bootstrap, kgo.ClientID(id), kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.WithHooks(pushed), kgo.UserMetricsFn(application))
	seen := 0
	until(ctx, "metrics are pushed twice", func() bool {
		check(client.ProduceSync(ctx, &kgo.Record{Value: []byte("told")}).FirstErr())
		written.Add(1)
		seen += len(read(ctx, client, 1))
		return pushed.answered.Load() >= 2
	})
	enough := pushed.answered.Load() + 2
	until(ctx, "the last record is told", func() bool { return pushed.answered.Load() >= enough })
	client.Close()
	return result{"written": written.Load(), "read": seen, "pushes": pushed.answered.Load()}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	scenario, bootstrap, topic := os.Args[1], os.Args[2], os.Args[3]
	var seen result
	switch scenario {
	case "produce":
		seen = produceAndRead(ctx, bootstrap, topic)
	case "group":
		seen = group(ctx, bootstrap, topic, os.Args[4], os.Args[5])
	case "admin":
		seen = admin(ctx, bootstrap, topic)
	case "transact":
		seen = transact(ctx, bootstrap, topic, os.Args[4], os.Args[5])
	case "telemetry":
		seen = telemetry(ctx, bootstrap, topic, os.Args[4])
	case "seek":
		seen = seek(ctx, bootstrap, topic)
	default:
		check(fmt.Errorf("no scenario %q", scenario))
	}
	check(json.NewEncoder(os.Stdout).Encode(seen))
}

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * A release of Kafka's Java client against a broker; what it saw goes to stdout as one JSON object.
 *
 * Arguments: bootstrap, topic, group, codecs with commas between. It keeps to calls of the releases from 0.11 to 3.9.
 */
public final class OldClient {
    private static final int PARTITIONS = 3;
    private static final int PER_LABEL = 20;
    private static final long START_MS = 1_600_000_000_000L;
    private static final long TIME_LIMIT_MS = 40_000;
    private static final String STRINGS = "org.apache.kafka.common.serialization.String";

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final long deadline = System.currentTimeMillis() + TIME_LIMIT_MS;
    private int written = 0;

    private OldClient(String bootstrap, String topic, String group) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = group;
    }

    private Properties settings(String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int n = 0; n < more.length; n += 2) {
            settings.put(more[n], more[n + 1]);
        }
        return settings;
    }

    private void send(String label, String... more) throws Exception {
        Properties settings = settings(more);
        settings.put("acks", "all");
        settings.put("linger.ms", "20");
        settings.put("key.serializer", STRINGS + "Serializer");
        settings.put("value.serializer", STRINGS + "Serializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < PER_LABEL; n++) {
                StringBuilder value = new StringBuilder();
                for (int times = 0; times < 10; times++) {
                    value.append(label).append(' ').append(n).append(' ');
                }
                List<Header> headers = Collections.singletonList(new RecordHeader("label", label.getBytes("UTF-8")));
                sent.add(producer.send(new ProducerRecord<>(
                    topic, n % PARTITIONS, START_MS + written + n, label + "-" + n, value.toString(), headers)));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
        written += PER_LABEL;
    }

    /** A member of the group, polled by turns with the other one. */
    private final class Member implements ConsumerRebalanceListener {
        final Set<Integer> owned = new TreeSet<>();
        final List<ConsumerRecord<String, String>> records = new ArrayList<>();
        final KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(
            "group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "fetch.max.wait.ms", "50", "session.timeout.ms", "6000", "heartbeat.interval.ms", "200",
            "key.deserializer", STRINGS + "Deserializer", "value.deserializer", STRINGS + "Deserializer"));

        Member() {
            consumer.subscribe(Collections.singletonList(topic), this);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                owned.remove(each.partition());
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                owned.add(each.partition());
            }
        }

        void read() {
            for (ConsumerRecord<String, String> record : consumer.poll(50)) {
                records.add(record);
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("out of time after " + records.size() + " records, owns " + owned);
            }
        }

        void close() {
            consumer.commitSync();
            consumer.close();
        }
    }

    private Map<String, Object> everything(List<String> codecs) throws Exception {
        Map<String, Object> seen = new TreeMap<>();
        seen.put("library", AppInfoParser.getVersion());
        try (AdminClient admin = AdminClient.create(settings())) {
            NewTopic created = new NewTopic(topic, PARTITIONS, (short) 1);
            created.configs(Collections.singletonMap("retention.ms", "-1"));
            admin.createTopics(Collections.singleton(created)).all().get();
            try {
                admin.createTopics(Collections.singleton(created)).all().get();
                seen.put("again", "created");
            } catch (ExecutionException refused) {
                seen.put("again", refused.getCause().getClass().getSimpleName());
            }
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            try {
                seen.put("retention", admin.describeConfigs(Collections.singleton(resource)).all().get()
                    .get(resource).get("retention.ms").value());
            } catch (ExecutionException refused) {
                seen.put("retention", refused.getCause().getClass().getSimpleName());
            }
            while (!admin.listTopics().names().get().contains(topic)) {
                Thread.sleep(20);
            }
        }
        for (String codec : codecs) {
            send(codec, "compression.type", codec);
        }
        send("idempotent", "enable.idempotence", "true");

        Member first = new Member();
        while (first.records.size() < written) {
            first.read();
        }
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (ConsumerRecord<String, String> record : first.records) {
            ends.put(new TopicPartition(topic, record.partition()),
                new OffsetAndMetadata(record.offset() + 1, "as far as " + record.offset()));
        }
        first.consumer.commitSync(ends);
        Map<String, Object> committed = new TreeMap<>();
        Map<String, Object> metadata = new TreeMap<>();
        List<TopicPartition> places = new ArrayList<>(ends.keySet());
        Map<TopicPartition, Long> middle = new HashMap<>();
        for (TopicPartition place : places) {
            OffsetAndMetadata found = first.consumer.committed(place);
            committed.put("" + place.partition(), found.offset());
            metadata.put("" + place.partition(), found.metadata());
            middle.put(place, START_MS + written / 2);
        }
        seen.put("committed", committed);
        seen.put("metadata", metadata);
        seen.put("newest", byPartition(first.consumer.endOffsets(places)));
        seen.put("oldest", byPartition(first.consumer.beginningOffsets(places)));
        Map<String, Object> byTime = new TreeMap<>();
        first.consumer.offsetsForTimes(middle).forEach((place, found) -> byTime.put("" + place.partition(), found.offset()));
        seen.put("by_time", byTime);

        // A poll of an old release lasts until its rebalance is over: each member needs a thread of its own.
        Member second = new Member();
        Polling other = new Polling(second);
        other.start();
        while (first.owned.size() == PARTITIONS || first.owned.isEmpty() || other.owned() + first.owned.size() < PARTITIONS) {
            first.read();
        }
        seen.put("shared", Arrays.asList(first.owned.size(), other.owned()));
        send("later");
        while (first.records.size() + other.count() < written) {
            first.read();
        }
        other.finish();
        first.close();
        List<ConsumerRecord<String, String>> all = new ArrayList<>(first.records);
        all.addAll(second.records);
        List<Object> records = new ArrayList<>();
        for (ConsumerRecord<String, String> record : all) {
            Map<String, Object> row = new TreeMap<>();
            row.put("key", record.key());
            row.put("value", record.value());
            Map<String, Object> headers = new TreeMap<>();
            for (Header header : record.headers()) {
                headers.put(header.key(), new String(header.value(), "UTF-8"));
            }
            row.put("headers", headers);
            row.put("partition", record.partition());
            row.put("offset", record.offset());
            row.put("timestamp", record.timestamp());
            records.add(row);
        }
        seen.put("records", records);
        seen.put("written", written);
        return seen;
    }

    /** Polls a member until it is told to finish; then the member commits and leaves. */
    private static final class Polling extends Thread {
        private final Member member;
        private volatile int owned;
        private volatile int count;
        private volatile boolean finished;
        private volatile Throwable failure;

        Polling(Member member) {
            this.member = member;
            setDaemon(true);
        }

        @Override
        public void run() {
            try {
                while (!finished) {
                    member.read();
                    owned = member.owned.size();
                    count = member.records.size();
                }
                member.close();
            } catch (Throwable thrown) {
                failure = thrown;
            }
        }

        int owned() {
            return owned;
        }

        int count() {
            return count;
        }

        void finish() throws InterruptedException {
            finished = true;
            join(TIME_LIMIT_MS);
            if (failure != null || isAlive()) {
                throw new IllegalStateException("the second member did not leave", failure);
            }
        }
    }

    private static Map<String, Object> byPartition(Map<TopicPartition, Long> offsets) {
        Map<String, Object> found = new TreeMap<>();
        offsets.forEach((place, offset) -> found.put("" + place.partition(), offset));
        return found;
    }

    private static String json(Object value) {
        if (value instanceof Map) {
            List<String> parts = new ArrayList<>();
            ((Map<?, ?>) value).forEach((key, each) -> parts.add(json(key) + ": " + json(each)));
            return "{" + String.join(", ", parts) + "}";
        }
        if (value instanceof List) {
            List<String> parts = new ArrayList<>();
            ((List<?>) value).forEach(each -> parts.add(json(each)));
            return "[" + String.join(", ", parts) + "]";
        }
        if (value instanceof String) {
            return "\"" + ((String) value).replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
        }
        return String.valueOf(value);
    }

    public static void main(String[] arguments) throws Exception {
        OldClient client = new OldClient(arguments[0], arguments[1], arguments[2]);
        System.out.println(json(client.everything(Arrays.asList(arguments[3].split(",")))));
        System.exit(0);
    }
}

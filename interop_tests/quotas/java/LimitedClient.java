import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer or consumer that does as much as it may, as clients.py describes it. */
public final class LimitedClient {
    private static final AtomicLong MOVED = new AtomicLong();

    private static Properties common(JsonNode settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap").asText());
        properties.put("client.id", settings.get("client").asText());
        properties.put("enable.metrics.push", "false");
        return properties;
    }

    private static void produce(KafkaProducer<byte[], byte[]> producer, String topic, int size, boolean isAlone) {
        byte[] value = new byte[size];
        while (true) {
            var sent = producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, failure) -> {
                if (failure == null) {
                    MOVED.addAndGet(size);
                }
            });
            if (isAlone) {
                try {
                    sent.get();
                } catch (Exception failure) {
                    throw new IllegalStateException(failure);
                }
            }
        }
    }

    private static void consume(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        while (true) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                MOVED.addAndGet(record.value().length);
            }
        }
    }

    private static double throttle(Map<MetricName, ? extends Metric> metrics) {
        double longest = 0;
        for (Map.Entry<MetricName, ? extends Metric> each : metrics.entrySet()) {
            if (each.getKey().name().endsWith("-throttle-time-max")
                && each.getValue().metricValue() instanceof Double value && value > longest) {
                longest = value;
            }
        }
        return longest;
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode settings = new ObjectMapper().readTree(arguments[0]);
        String topic = settings.get("topic").asText();
        String kind = settings.get("kind").asText();
        int size = settings.get("size").asInt();
        Map<MetricName, ? extends Metric> metrics;
        Thread work;
        if (kind.equals("fetch")) {
            Properties properties = common(settings);
            properties.put("max.partition.fetch.bytes", "65536");
            var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            metrics = consumer.metrics();
            work = new Thread(() -> consume(consumer, topic));
        } else {
            var producer = new KafkaProducer<>(common(settings), new ByteArraySerializer(), new ByteArraySerializer());
            metrics = producer.metrics();
            work = new Thread(() -> produce(producer, topic, size, kind.equals("request")));
        }
        work.setDaemon(true);
        work.start();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        while (commands.readLine() != null) {
            System.out.println("{\"moved\": " + MOVED.get() + ", \"throttle_ms\": " + throttle(metrics) + "}");
        }
        Runtime.getRuntime().halt(0);
    }
}

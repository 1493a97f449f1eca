import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * A member of a group that copies a topic exactly once, with Kafka's own clients.
 *
 * java Copier.java BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID, saying what copiers/librdkafka.py says.
 */
public class Copier {
    static final int FAILED_FOR_GOOD = 3;

    public static void main(String[] words) {
        String source = words[1], target = words[2];
        Properties common = new Properties();
        common.put("bootstrap.servers", words[0]);
        common.put("client.id", words[4]);
        String bytes = "org.apache.kafka.common.serialization.ByteArray";
        Properties settings = new Properties();
        settings.putAll(common);
        settings.put("transactional.id", words[4]);
        settings.put("transaction.timeout.ms", "20000");
        settings.put("key.serializer", bytes + "Serializer");
        settings.put("value.serializer", bytes + "Serializer");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        untilDone(producer::initTransactions);
        settings = new Properties();
        settings.putAll(common);
        settings.put("group.id", words[3]);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "200");
        settings.put("key.deserializer", bytes + "Deserializer");
        settings.put("value.deserializer", bytes + "Deserializer");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(List.of(source));
        say("ready");
        try {
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    copy(consumer, producer, records, target);
                }
            }
        } catch (RuntimeException error) {
            say("ended " + error);
            System.exit(FAILED_FOR_GOOD);
        }
    }

    static void copy(
            KafkaConsumer<byte[], byte[]> consumer,
            KafkaProducer<byte[], byte[]> producer,
            ConsumerRecords<byte[], byte[]> records,
            String target) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> each : records) {
                producer.send(new ProducerRecord<>(target, each.partition(), null, each.value()));
                ends.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            untilDone(producer::commitTransaction);
            say("committed " + records.count());
        } catch (ProducerFencedException error) {
            throw error;
        } catch (KafkaException error) {
            say("failed " + error);
            untilDone(producer::abortTransaction);
            rewind(consumer);
        }
    }

    static void untilDone(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                say("failed " + error + ", again");
            }
        }
    }

    static void rewind(KafkaConsumer<byte[], byte[]> consumer) {
        while (true) {
            try {
                Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                for (TopicPartition each : consumer.assignment()) {
                    OffsetAndMetadata offset = committed.get(each);
                    consumer.seek(each, offset == null ? 0 : offset.offset());
                }
                return;
            } catch (KafkaException error) {
                say("failed " + error + ", rewinding");
            }
        }
    }

    static void say(String text) {
        System.out.println(text.replace('\n', ' '));
        System.out.flush();
    }
}

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own client in transactions of a few records, one after the other in each of some threads. Prints one line of JSON.
 * Arguments: bootstrap topic rate records size producers warmSeconds seconds, or bootstrap topic latency count ratePerSecond size.
 */
public final class TransactionLoop {
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    public static void main(String[] arguments) throws Exception {
        if (arguments[2].equals("rate")) {
            rate(arguments[0], arguments[1], number(arguments[3]), number(arguments[4]), number(arguments[5]),
                number(arguments[6]), number(arguments[7]));
        } else {
            latency(arguments[0], arguments[1], number(arguments[3]), number(arguments[4]), number(arguments[5]));
        }
        System.exit(0);
    }

    private static void rate(String bootstrap, String topic, int records, int size, int producers, int warmSeconds,
            int seconds) throws Exception {
        long from = System.nanoTime() + warmSeconds * 1_000_000_000L;
        long until = from + seconds * 1_000_000_000L;
        LongAdder done = new LongAdder();
        ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        for (int each = 0; each < producers; each++) {
            String id = "java-" + each;
            Thread thread = new Thread(() -> {
                try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, id)) {
                    byte[] value = new byte[size];
                    while (System.nanoTime() < until) {
                        producer.beginTransaction();
                        for (int record = 0; record < records; record++) {
                            producer.send(new ProducerRecord<>(topic, value));
                        }
                        finish(producer);
                        long now = System.nanoTime();
                        if (now >= from && now < until) {
                            done.increment();
                        }
                    }
                } catch (Throwable failure) {
                    failures.add(failure);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (!failures.isEmpty()) {
            throw new IllegalStateException(failures.peek());
        }
        System.out.println("{\"transactions_per_s\": " + done.sum() / (double) seconds + "}");
    }

    private static void latency(String bootstrap, String topic, int count, int rate, int size) throws Exception {
        double[] samples = new double[count];
        Thread reader = new Thread(() -> {
            Properties settings = common(bootstrap);
            settings.put("isolation.level", "read_committed");
            settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
            settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
            try (KafkaConsumer<byte[], String> consumer = new KafkaConsumer<>(settings)) {
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seek(partition, 0);
                long deadline = System.nanoTime() + count / rate * 1_000_000_000L + PATIENCE.toNanos();
                int seen = 0;
                while (seen < count && System.nanoTime() < deadline) {
                    for (ConsumerRecord<byte[], String> record : consumer.poll(Duration.ofSeconds(1))) {
                        samples[seen++] = (System.nanoTime() - Long.parseLong(record.value().trim())) / 1e6;
                    }
                }
            }
        });
        reader.start();
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, "java-latency")) {
            long started = System.nanoTime();
            for (int sent = 0; sent < count; sent++) {
                long wait = started + (long) (sent * 1e9 / rate) - System.nanoTime();
                if (wait > 0) {
                    Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
                }
                producer.beginTransaction();
                byte[] value = String.format("%-" + size + "d", System.nanoTime()).getBytes();
                producer.send(new ProducerRecord<>(topic, value));
                finish(producer);
            }
        }
        reader.join();
        double[] counted = Arrays.copyOfRange(samples, count / 5, count);
        Arrays.sort(counted);
        if (counted[0] == 0) {
            throw new IllegalStateException("not all records came back");
        }
        System.out.println("{\"p50_ms\": " + counted[counted.length / 2] + ", \"p99_ms\": "
            + counted[(int) (counted.length * 0.99)] + "}");
    }

    /**
     * Commit. The producer asks whether batches are on their way and takes up the commit in two steps: without the flush, which costs
     * nothing more, a commit that comes in between is now and then sent before its records, and any broker refuses it.
     */
    private static void finish(KafkaProducer<byte[], byte[]> producer) {
        producer.flush();
        producer.commitTransaction();
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String id) {
        Properties settings = common(bootstrap);
        settings.put("transactional.id", id);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }

    private static Properties common(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    private static int number(String argument) {
        return Integer.parseInt(argument);
    }
}

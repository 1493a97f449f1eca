import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words, and of the words of each length how often they came: two stores with changelogs, one of them on disk,
 * and two repartition topics, each group of keys in other partitions than its inputs.
 *
 * Arguments: a file of Streams' settings, the topic of lines, the topic of counts, the topic of totals. Every change of
 * state is a line on standard output. It ends with 0 after SIGTERM, with 1 when Streams gives up.
 */
public final class WordCount {
    private WordCount() {
    }

    static StreamsBuilder topology(String lines, String counts, String totals) {
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, Long> counted = builder.stream(lines, Consumed.with(Serdes.Bytes(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .selectKey((key, word) -> word)
            .groupByKey(Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
        counted.toStream().to(counts, Produced.with(Serdes.String(), Serdes.Long()));
        counted.groupBy((word, count) -> KeyValue.pair(word.length(), count),
                Grouped.with("lengths", Serdes.Integer(), Serdes.Long()))
            .reduce(Long::sum, (sum, old) -> sum - old,
                Materialized.<Integer, Long>as(Stores.inMemoryKeyValueStore("totals"))
                    .withKeySerde(Serdes.Integer()).withValueSerde(Serdes.Long()))
            .toStream().to(totals, Produced.with(Serdes.Integer(), Serdes.Long()));
        return builder;
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = new FileInputStream(arguments[0])) {
            settings.load(file);
        }
        KafkaStreams streams = new KafkaStreams(
            topology(arguments[1], arguments[2], arguments[3]).build(), settings);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((state, before) -> {
            System.out.println(state);
            if (state == KafkaStreams.State.ERROR || state == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        Thread stopping = new Thread(() -> {
            if (streams.close(Duration.ofSeconds(30))) {
                Runtime.getRuntime().halt(0);
            }
        });
        Runtime.getRuntime().addShutdownHook(stopping);
        streams.start();
        ended.await();
        if (streams.state() == KafkaStreams.State.ERROR) {
            Runtime.getRuntime().halt(1);
        }
        Thread.currentThread().join();
    }
}

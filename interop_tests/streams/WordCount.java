import java.util.Arrays;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
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
 */
final class WordCount {
    private WordCount() {
    }

    static void add(StreamsBuilder builder, String lines, String counts, String totals) {
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
    }
}

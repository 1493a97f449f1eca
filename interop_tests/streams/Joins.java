import java.time.Duration;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * A stream-stream join whose windows hold all records of a test, and a stream-table join. The values of both sides are
 * joined with a slash.
 */
final class Joins {
    private Joins() {
    }

    static void add(StreamsBuilder builder, String left, String right, String table, String pairs, String looked) {
        Serde<String> text = Serdes.String();
        KStream<String, String> lefts = builder.stream(left, Consumed.with(text, text));
        KStream<String, String> rights = builder.stream(right, Consumed.with(text, text));
        KTable<String, String> values = builder.table(table, Consumed.with(text, text));
        lefts.join(rights, (one, other) -> one + "/" + other,
                JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofHours(1)),
                StreamJoined.with(text, text, text).withName("pairs"))
            .to(pairs, Produced.with(text, text));
        lefts.join(values, (one, other) -> one + "/" + other, Joined.with(text, text, text))
            .to(looked, Produced.with(text, text));
    }
}

import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * One instance of a Streams application that counts words, and joins if it gets topics for that; or of several
 * applications in one process.
 *
 * Arguments: a file of Streams' settings, the three topics of WordCount, and the five of Joins or none; after "--" the
 * same of the next application. Every change of state is a line on standard output. It ends with 0 after SIGTERM, with 1
 * when Streams gives up.
 */
public final class Application {
    private Application() {
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch ended = new CountDownLatch(1);
        List<KafkaStreams> all = new ArrayList<>();
        List<String> left = Arrays.asList(arguments);
        while (!left.isEmpty()) {
            int end = left.contains("--") ? left.indexOf("--") : left.size();
            all.add(made(left.subList(0, end), ended));
            left = left.subList(Math.min(end + 1, left.size()), left.size());
        }
        Thread stopping = new Thread(() -> {
            if (all.parallelStream().allMatch(each -> each.close(Duration.ofSeconds(30)))) {
                Runtime.getRuntime().halt(0);
            }
        });
        Runtime.getRuntime().addShutdownHook(stopping);
        all.forEach(KafkaStreams::start);
        ended.await();
        if (all.stream().anyMatch(each -> each.state() == KafkaStreams.State.ERROR)) {
            Runtime.getRuntime().halt(1);
        }
        Thread.currentThread().join();
    }

    private static KafkaStreams made(List<String> arguments, CountDownLatch ended) throws IOException {
        Properties settings = new Properties();
        try (InputStream file = new FileInputStream(arguments.get(0))) {
            settings.load(file);
        }
        StreamsBuilder builder = new StreamsBuilder();
        WordCount.add(builder, arguments.get(1), arguments.get(2), arguments.get(3));
        if (arguments.size() > 4) {
            Joins.add(builder, arguments.get(4), arguments.get(5), arguments.get(6), arguments.get(7), arguments.get(8));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((state, before) -> {
            System.out.println(state);
            if (state == KafkaStreams.State.ERROR || state == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        return streams;
    }
}

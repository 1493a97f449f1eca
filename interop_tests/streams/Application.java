import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * One instance of a Streams application that counts words, and joins if it gets topics for that.
 *
 * Arguments: a file of Streams' settings, the three topics of WordCount, and the five of Joins or none. Every change of
 * state is a line on standard output. It ends with 0 after SIGTERM, with 1 when Streams gives up.
 */
public final class Application {
    private Application() {
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (InputStream file = new FileInputStream(arguments[0])) {
            settings.load(file);
        }
        StreamsBuilder builder = new StreamsBuilder();
        WordCount.add(builder, arguments[1], arguments[2], arguments[3]);
        if (arguments.length > 4) {
            Joins.add(builder, arguments[4], arguments[5], arguments[6], arguments[7], arguments[8]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
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

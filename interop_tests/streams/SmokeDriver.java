import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.streams.tests.SmokeTestDriver;

/**
 * The driver of Kafka's own smoke test of Streams, with a number of records and a duration of choice: it writes the
 * input, and checks each of the application's outputs against it.
 *
 * Arguments: bootstrap servers, number of keys, records of each key, seconds over which they are written, and
 * processing.guarantee. "WRITTEN" on standard output says that the input is complete. It checks when standard input ends,
 * because Kafka's driver takes a transaction that is committed while it compares offsets for a fault. It ends with 0 if all
 * outputs are as expected.
 */
public final class SmokeDriver {
    private SmokeDriver() {
    }

    public static void main(String[] arguments) throws IOException {
        String bootstrap = arguments[0];
        int keys = Integer.parseInt(arguments[1]);
        int records = Integer.parseInt(arguments[2]);
        Duration duration = Duration.ofSeconds(Long.parseLong(arguments[3]));
        Map<String, Set<Integer>> written = SmokeTestDriver.generate(bootstrap, keys, records, duration);
        System.out.println("WRITTEN");
        System.in.readAllBytes();
        boolean passed = SmokeTestDriver.verify(bootstrap, written, records, arguments[4].startsWith("exactly_once"))
            .passed();
        Runtime.getRuntime().halt(passed ? 0 : 1);
    }
}

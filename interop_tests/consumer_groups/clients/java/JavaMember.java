import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One member of a group, by default of the consumer protocol, as members.py describes it: settings as JSON in the only argument,
 * a command a line on standard input, and an answer a line on standard output.
 *
 * Without an argument it has any number of members, each in a thread of its own. A command then names its member, and "start"
 * has the settings of a new one. It has no answer.
 */
public final class JavaMember {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, List<Long>> read = new TreeMap<>();
    private final String topic;
    private final KafkaConsumer<String, String> consumer;
    private final boolean commitsByItself;
    private boolean isBehind;
    private String error;

    private JavaMember(JsonNode settings) {
        topic = settings.path("topic").asText(null);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap").asText());
        properties.put("group.id", settings.get("group").asText());
        properties.put("group.protocol", settings.path("protocol").asText("consumer"));
        properties.put("client.id", settings.get("client").asText());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("metadata.max.age.ms", "1000");
        properties.put("fetch.max.wait.ms", "50");
        if (settings.hasNonNull("assignor")) {
            properties.put("group.remote.assignor", settings.get("assignor").asText());
        }
        if (settings.hasNonNull("strategy")) {
            properties.put("partition.assignment.strategy", settings.get("strategy").asText());
            properties.put("heartbeat.interval.ms", "300");
        }
        commitsByItself = settings.hasNonNull("commits");
        if (settings.hasNonNull("instance")) {
            properties.put("group.instance.id", settings.get("instance").asText());
        }
        consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        if (settings.hasNonNull("regex")) {
            consumer.subscribe(new SubscriptionPattern(settings.get("regex").asText()));
        } else {
            consumer.subscribe(List.of(topic));
        }
    }

    private void poll() {
        if (error != null) {
            return;
        }
        try {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(20))) {
                read.computeIfAbsent(record.topic() + "-" + record.partition(), name -> new ArrayList<>())
                    .add(record.offset());
                isBehind = commitsByItself;
            }
            commitWhatIsRead();
        } catch (RuntimeException failure) {
            error = failure.toString();
        }
    }

    /** Of the partitions that the member has now. It fails while the member has to join again, or has lost its partitions. */
    private void commitWhatIsRead() {
        if (!isBehind) {
            return;
        }
        try {
            consumer.commitSync();
            isBehind = false;
        } catch (CommitFailedException | RebalanceInProgressException | RetriableException failure) {
            // It is tried again after the next poll, with what the member has then.
        }
    }

    private void commit(JsonNode command) throws InterruptedException {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        command.get("offsets").fields().forEachRemaining(each -> offsets.put(
            new TopicPartition(topic, Integer.parseInt(each.getKey())), new OffsetAndMetadata(each.getValue().asLong())));
        if (command.get("how").asText().equals("sync")) {
            consumer.commitSync(offsets);
            return;
        }
        AtomicReference<Optional<Exception>> outcome = new AtomicReference<>();
        consumer.commitAsync(offsets, (done, failure) -> outcome.set(Optional.ofNullable(failure)));
        while (outcome.get() == null) {
            poll();
        }
        outcome.get().ifPresent(failure -> {
            throw new IllegalStateException(failure);
        });
    }

    private Map<String, Object> answer(JsonNode command) throws InterruptedException {
        switch (command.get("do").asText()) {
            case "state":
                break;
            case "forget":
                read.clear();
                break;
            case "commit":
                commit(command);
                break;
            case "close":
                commitWhatIsRead();
                consumer.close();
                break;
            default:
                throw new IllegalArgumentException(command.toString());
        }
        Map<String, Object> state = new HashMap<>();
        List<String> owned = new ArrayList<>();
        if (!command.get("do").asText().equals("close")) {
            consumer.assignment().forEach(each -> owned.add(each.toString()));
        }
        state.put("owned", owned);
        state.put("read", read);
        state.put("error", error);
        return state;
    }

    private static BufferedReader input() {
        return new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    }

    /** Until it is told to close. */
    private static void run(JsonNode settings, Queue<JsonNode> commands) throws Exception {
        JavaMember member = new JavaMember(settings);
        while (true) {
            JsonNode command = commands.poll();
            if (command == null) {
                member.poll();
                // A member that has failed only answers.
                Thread.sleep(member.error == null ? 0 : 20);
                continue;
            }
            System.out.println(JSON.writeValueAsString(member.answer(command)));
            if (command.get("do").asText().equals("close")) {
                return;
            }
        }
    }

    private static void inThread(Callable<Void> work) {
        Thread thread = new Thread(() -> {
            try {
                work.call();
            } catch (Exception failure) {
                failure.printStackTrace();
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static void runMany() throws Exception {
        Map<String, Queue<JsonNode>> commands = new HashMap<>();
        BufferedReader input = input();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode command = JSON.readTree(line);
            String name = command.get("member").asText();
            if (command.get("do").asText().equals("start")) {
                Queue<JsonNode> own = new ConcurrentLinkedQueue<>();
                commands.put(name, own);
                inThread(() -> {
                    run(command.get("settings"), own);
                    return null;
                });
            } else {
                commands.get(name).add(command);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            runMany();
            return;
        }
        Queue<JsonNode> commands = new ConcurrentLinkedQueue<>();
        inThread(() -> {
            BufferedReader input = input();
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                commands.add(JSON.readTree(line));
            }
            return null;
        });
        run(JSON.readTree(arguments[0]), commands);
    }
}

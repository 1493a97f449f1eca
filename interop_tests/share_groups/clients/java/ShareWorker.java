import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** One member of a share group, as workers.py describes it. */
public final class ShareWorker {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final KafkaShareConsumer<String, String> consumer;
    private final List<List<Object>> records = new ArrayList<>();
    private final Map<String, ConsumerRecord<String, String>> held = new TreeMap<>();
    private final Map<String, String> outcome = new TreeMap<>();
    private int outcomes;

    private ShareWorker(JsonNode settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap").asText());
        properties.put("group.id", settings.get("group").asText());
        properties.put("client.id", settings.get("client").asText());
        properties.put("share.acknowledgement.mode", settings.get("mode").asText());
        properties.put("fetch.max.wait.ms", "100");
        properties.put("metadata.max.age.ms", "1000");
        if (settings.hasNonNull("records")) {
            properties.put("max.poll.records", settings.get("records").asText());
        }
        if (settings.hasNonNull("acquire")) {
            properties.put("share.acquire.mode", settings.get("acquire").asText());
        }
        consumer = new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        consumer.setAcknowledgementCommitCallback((offsets, failure) -> {
            outcomes++;
            offsets.keySet().forEach(each -> outcome.put(
                each.topic() + "-" + each.partition(), failure == null ? null : failure.getClass().getSimpleName()));
        });
        consumer.subscribe(List.of(settings.get("topic").asText()));
    }

    private void poll(long millis) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(millis))) {
            held.put(record.partition() + ":" + record.offset(), record);
            records.add(List.of(record.partition(), record.offset(), (int) record.deliveryCount().orElse((short) -1),
                record.value()));
        }
    }

    private void commit(boolean isSync) {
        if (isSync) {
            consumer.commitSync().forEach((place, failure) -> outcome.put(place.topic() + "-" + place.partition(),
                failure.map(each -> each.getClass().getSimpleName()).orElse(null)));
            return;
        }
        int before = outcomes;
        consumer.commitAsync();
        while (outcomes == before) {
            poll(20);
        }
    }

    private Map<String, Object> answer(JsonNode command) {
        records.clear();
        outcome.clear();
        String error = null;
        try {
            switch (command.get("do").asText()) {
                case "poll":
                    poll(command.get("ms").asLong());
                    break;
                case "acknowledge":
                    AcknowledgeType type = AcknowledgeType.valueOf(command.get("type").asText().toUpperCase(Locale.ROOT));
                    command.get("records").forEach(each -> consumer.acknowledge(
                        held.get(each.get(0).asText() + ":" + each.get(1).asText()), type));
                    break;
                case "commit":
                    commit(command.get("how").asText().equals("sync"));
                    break;
                case "close":
                    consumer.close();
                    break;
                default:
                    throw new IllegalArgumentException(command.toString());
            }
        } catch (RuntimeException failure) {
            error = failure.toString();
        }
        Map<String, Object> answer = new TreeMap<>();
        answer.put("records", records);
        answer.put("outcome", outcome);
        answer.put("error", error);
        return answer;
    }

    public static void main(String[] arguments) throws Exception {
        ShareWorker worker = new ShareWorker(JSON.readTree(arguments[0]));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = commands.readLine()) != null) {
            JsonNode command = JSON.readTree(line);
            System.out.println(JSON.writeValueAsString(worker.answer(command)));
            if (command.get("do").asText().equals("close")) {
                return;
            }
        }
    }
}

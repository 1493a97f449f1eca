import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;

/** Creates topics, adds partitions and deletes topics under a quota of mutations, with and without retries. */
public final class MutatingClient {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static Map<String, KafkaFuture<Void>> begin(Admin admin, JsonNode command) {
        List<String> names = new ArrayList<>();
        command.get("topics").forEach(each -> names.add(each.asText()));
        int partitions = command.get("partitions").asInt();
        boolean retries = command.get("retries").asBoolean();
        switch (command.get("do").asText()) {
            case "create":
                List<NewTopic> topics = names.stream().map(each -> new NewTopic(each, partitions, (short) 1)).toList();
                return admin.createTopics(topics, new CreateTopicsOptions().retryOnQuotaViolation(retries)).values();
            case "grow":
                Map<String, NewPartitions> grown = new TreeMap<>();
                names.forEach(each -> grown.put(each, NewPartitions.increaseTo(partitions)));
                return admin.createPartitions(grown, new CreatePartitionsOptions().retryOnQuotaViolation(retries)).values();
            default:
                return admin.deleteTopics(names, new DeleteTopicsOptions().retryOnQuotaViolation(retries)).topicNameValues();
        }
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode settings = JSON.readTree(arguments[0]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", settings.get("bootstrap").asText());
        properties.put("client.id", settings.get("client").asText());
        properties.put("enable.metrics.push", "false");
        Admin admin = Admin.create(properties);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = commands.readLine()) != null) {
            long began = System.nanoTime();
            ObjectNode answer = JSON.createObjectNode();
            ObjectNode errors = answer.putObject("errors");
            int throttleMs = 0;
            for (Map.Entry<String, KafkaFuture<Void>> each : new TreeMap<>(begin(admin, JSON.readTree(line))).entrySet()) {
                try {
                    each.getValue().get();
                    errors.put(each.getKey(), "");
                } catch (ExecutionException failure) {
                    errors.put(each.getKey(), failure.getCause().getClass().getSimpleName());
                    if (failure.getCause() instanceof ThrottlingQuotaExceededException refusal) {
                        throttleMs = Math.max(throttleMs, refusal.throttleTimeMs());
                    }
                }
            }
            answer.put("throttle_ms", throttleMs);
            answer.put("took_ms", (System.nanoTime() - began) / 1_000_000);
            System.out.println(answer);
        }
        Runtime.getRuntime().halt(0);
    }
}

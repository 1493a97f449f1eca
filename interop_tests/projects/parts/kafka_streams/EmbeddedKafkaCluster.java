package org.apache.kafka.streams.integration.utils;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.server.util.MockTime;

/**
 * The cluster of the tests of Kafka Streams, as `kafkacompat testserver`. It stands before theirs in the class path, and their tests
 * run as they are published.
 */
public class EmbeddedKafkaCluster {
    private static final String COMMAND = System.getenv("KAFKACOMPAT_COMMAND");
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long WAIT_MS = 60_000;

    public final MockTime time;
    private final int nodes;
    private final Properties settings;
    private final HttpClient http = HttpClient.newHttpClient();
    private Process process;
    private JsonNode info;

    public EmbeddedKafkaCluster(int nodes) {
        this(nodes, new Properties());
    }

    public EmbeddedKafkaCluster(int nodes, Properties settings) {
        this(nodes, settings, System.currentTimeMillis());
    }

    public EmbeddedKafkaCluster(int nodes, Properties settings, long startMs) {
        this(nodes, settings, List.of(), startMs, System.nanoTime());
    }

    public EmbeddedKafkaCluster(int nodes, Properties settings, List<Properties> ofEach) {
        this(nodes, settings, ofEach, System.currentTimeMillis());
    }

    public EmbeddedKafkaCluster(int nodes, Properties settings, List<Properties> ofEach, long startMs) {
        this(nodes, settings, ofEach, startMs, System.nanoTime());
    }

    public EmbeddedKafkaCluster(
        int nodes, Properties settings, List<Properties> ofEach, long startMs, long startNs) {
        if (!ofEach.stream().allMatch(Properties::isEmpty)) {
            throw new UnsupportedOperationException("settings of single nodes");
        }
        this.nodes = nodes;
        this.settings = settings;
        this.time = new MockTime(startMs, startNs);
    }

    public void start() throws IOException {
        Properties all = new Properties();
        all.put("offsets.topic.num.partitions", "5");
        all.put("transaction.state.log.num.partitions", "5");
        all.put("group.min.session.timeout.ms", "0");
        all.putAll(settings);
        List<String> command = new ArrayList<>(Arrays.asList(COMMAND.split(" ")));
        command.addAll(List.of("testserver", "--nodes", String.valueOf(nodes)));
        all.forEach((name, value) -> command.addAll(List.of("--settings", name + "=" + value)));
        // It ends when its standard input does, which is when this process ends.
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader said = new BufferedReader(new InputStreamReader(process.getInputStream()));
        String line = said.readLine();
        if (line == null) {
            throw new IOException("kafkacompat testserver has not started");
        }
        info = JSON.readTree(line);
    }

    public void stop() {
        if (process != null) {
            process.destroy();
        }
    }

    public String bootstrapServers() {
        return info.get("bootstrap_servers").asText();
    }

    public String zKConnectString() {
        throw new UnsupportedOperationException("there is no ZooKeeper");
    }

    public void createTopics(String... topics) throws InterruptedException {
        for (String topic : topics) {
            createTopic(topic);
        }
    }

    public void createTopic(String topic) throws InterruptedException {
        createTopic(topic, 1, 1, Map.of());
    }

    public void createTopic(String topic, int partitions, int replication) throws InterruptedException {
        createTopic(topic, partitions, replication, Map.of());
    }

    public void createTopic(String topic, int partitions, int replication, Map<String, String> configs)
        throws InterruptedException {
        ObjectNode body = JSON.createObjectNode();
        body.put("name", topic).put("partitions", partitions).put("replication_factor", replication);
        body.set("configs", JSON.valueToTree(configs));
        ask("POST", "/topics", body.toString());
    }

    public void deleteTopic(String topic) throws InterruptedException {
        ask("DELETE", "/topics/" + URLEncoder.encode(topic, StandardCharsets.UTF_8), "");
    }

    public void deleteTopics(String... topics) throws InterruptedException {
        for (String topic : topics) {
            deleteTopic(topic);
        }
    }

    public void deleteTopicAndWait(String topic) throws InterruptedException {
        deleteTopicsAndWait(topic);
    }

    public void deleteTopicsAndWait(String... topics) throws InterruptedException {
        deleteTopicsAndWait(WAIT_MS, topics);
    }

    public void deleteTopicsAndWait(long timeoutMs, String... topics) throws InterruptedException {
        deleteTopics(topics);
        Set<String> gone = Set.of(topics);
        await(timeoutMs, () -> allTopics().stream().noneMatch(gone::contains), "topics are there yet");
    }

    public void deleteAllTopicsAndWait(long timeoutMs) throws InterruptedException {
        Collection<String> topics = allTopics();
        topics.removeIf(each -> each.startsWith("__"));
        deleteTopicsAndWait(timeoutMs, topics.toArray(new String[0]));
    }

    public void waitForRemainingTopics(long timeoutMs, String... topics) throws InterruptedException {
        Set<String> wanted = new HashSet<>(Set.of(topics));
        wanted.removeIf(each -> each.startsWith("__"));
        await(timeoutMs, () -> {
            Set<String> found = allTopics();
            found.removeIf(each -> each.startsWith("__"));
            return found.equals(wanted);
        }, "there are not the topics " + wanted);
    }

    public Set<String> getAllTopicsInCluster() {
        return allTopics();
    }

    public Properties getLogConfig(String topic) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Properties found = new Properties();
        try (Admin admin = admin()) {
            admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                .forEach(each -> found.put(each.name(), each.value() == null ? "" : each.value()));
        } catch (Exception failure) {
            throw new AssertionError(failure);
        }
        return found;
    }

    private Set<String> allTopics() {
        try (Admin admin = admin()) {
            return new HashSet<>(admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        } catch (Exception failure) {
            throw new AssertionError(failure);
        }
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrapServers()));
    }

    private interface Condition {
        boolean holds();
    }

    private static void await(long timeoutMs, Condition condition, String otherwise) throws InterruptedException {
        long end = System.currentTimeMillis() + timeoutMs;
        while (!condition.holds()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError(otherwise);
            }
            Thread.sleep(20);
        }
    }

    private void ask(String method, String path, String body) throws InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(info.get("control").asText() + path))
            .header("Authorization", "Bearer " + info.get("token").asText())
            .method(method, body.isEmpty() ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body))
            .build();
        try {
            HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new AssertionError(method + " " + path + ": " + answer.body());
            }
        } catch (IOException failure) {
            throw new AssertionError(failure);
        }
    }
}

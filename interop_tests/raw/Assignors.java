import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** A line of JSON for each question on standard input, one for each answer on standard output. See kafka_assignors.py. */
public class Assignors {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            JsonNode asked = JSON.readTree(lines.nextLine());
            System.out.println(asked.has("assignor") ? assignment(asked) : hash(asked));
        }
    }

    static Uuid uuid(String hex) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    static String hex(Uuid uuid) {
        ByteBuffer bytes = ByteBuffer.allocate(16);
        bytes.putLong(uuid.getMostSignificantBits()).putLong(uuid.getLeastSignificantBits());
        return HexFormat.of().formatHex(bytes.array());
    }

    static JsonNode assignment(JsonNode asked) {
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("counts").fields().forEachRemaining(each -> counts.put(uuid(each.getKey()), each.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (JsonNode member : asked.get("members")) {
            String memberId = member.get("id").asText();
            Set<Uuid> topics = new LinkedHashSet<>();
            member.get("topics").forEach(each -> topics.add(uuid(each.asText())));
            Map<Uuid, Set<Integer>> assigned = new TreeMap<>();
            member.get("assigned").fields().forEachRemaining(each -> {
                Uuid topic = uuid(each.getKey());
                Set<Integer> partitions = assigned.computeIfAbsent(topic, any -> new TreeSet<>());
                each.getValue().forEach(partition -> {
                    partitions.add(partition.asInt());
                    owners.computeIfAbsent(topic, any -> new HashMap<>()).put(partition.asInt(), memberId);
                });
            });
            JsonNode instance = member.get("instance");
            members.put(memberId, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                instance.isNull() ? Optional.empty() : Optional.of(instance.asText()),
                topics,
                new Assignment(assigned)));
        }
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        PartitionAssignor assignor = switch (asked.get("assignor").asText()) {
            case "range" -> new RangeAssignor();
            case "uniform" -> new UniformAssignor();
            default -> new SimpleAssignor();
        };
        Map<Uuid, Set<Integer>> assignable = new HashMap<>();
        if (asked.has("assignable")) {
            asked.get("assignable").fields().forEachRemaining(each -> {
                Set<Integer> partitions = assignable.computeIfAbsent(uuid(each.getKey()), any -> new TreeSet<>());
                each.getValue().forEach(partition -> partitions.add(partition.asInt()));
            });
        }
        Optional<Map<Uuid, Set<Integer>>> allowed =
            asked.has("assignable") ? Optional.of(assignable) : Optional.empty();
        SubscriptionType type =
            asked.get("homogeneous").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ObjectNode answer = JSON.createObjectNode();
        assignor.assign(new GroupSpecImpl(members, type, owners, allowed), describer).members().forEach((memberId, assigned) -> {
            ObjectNode topics = answer.putObject(memberId);
            assigned.partitions().forEach((topic, partitions) -> {
                ArrayNode numbers = topics.putArray(hex(topic));
                new TreeSet<>(partitions).forEach(numbers::add);
            });
        });
        return answer;
    }

    static JsonNode hash(JsonNode asked) {
        Map<String, Long> hashes = new HashMap<>();
        ObjectNode answer = JSON.createObjectNode();
        asked.get("topics").forEach(topic -> {
            String name = topic.get("name").asText();
            hashes.put(name, Utils.computeTopicHash(name, new Topic(topic)));
        });
        hashes.forEach(answer.putObject("topics")::put);
        answer.put("group", Utils.computeGroupHash(hashes));
        return answer;
    }

    /** An image with one topic. */
    record Topic(JsonNode topic) implements CoordinatorMetadataImage, CoordinatorMetadataImage.TopicMetadata {
        @Override
        public Set<Uuid> topicIds() {
            return Set.of(id());
        }

        @Override
        public Set<String> topicNames() {
            return Set.of(name());
        }

        @Override
        public Optional<CoordinatorMetadataImage.TopicMetadata> topicMetadata(String name) {
            return name.equals(name()) ? Optional.of(this) : Optional.empty();
        }

        @Override
        public Optional<CoordinatorMetadataImage.TopicMetadata> topicMetadata(Uuid id) {
            return id.equals(id()) ? Optional.of(this) : Optional.empty();
        }

        @Override
        public CoordinatorMetadataDelta emptyDelta() {
            return CoordinatorMetadataDelta.EMPTY;
        }

        @Override
        public long version() {
            return 0;
        }

        @Override
        public boolean isEmpty() {
            return false;
        }

        @Override
        public String name() {
            return topic.get("name").asText();
        }

        @Override
        public Uuid id() {
            return uuid(topic.get("id").asText());
        }

        @Override
        public int partitionCount() {
            return topic.get("racks").size();
        }

        @Override
        public List<String> partitionRacks(int partition) {
            List<String> racks = new ArrayList<>();
            topic.get("racks").get(partition).forEach(each -> racks.add(each.asText()));
            return racks;
        }
    }
}

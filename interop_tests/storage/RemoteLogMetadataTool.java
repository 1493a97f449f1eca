import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/**
 * Reads with Apache Kafka's TopicBasedRemoteLogMetadataManager what a cluster knows of one partition's remote segments, and records
 * one of another partition. Arguments: bootstrap servers, partitions of the topic, topic, partition, topic id, folder. Prints a line for each segment:
 * SEGMENT, id, start offset, end offset, size, state; and HIGHEST with the highest offset of epoch 0, for each of the
 * two partitions.
 */
public final class RemoteLogMetadataTool {
    public static void main(String[] arguments) throws Exception {
        TopicIdPartition partition = new TopicIdPartition(
            Uuid.fromString(arguments[4]), new TopicPartition(arguments[2], Integer.parseInt(arguments[3])));
        // No broker leads it, so none has a say in what is recorded of it.
        TopicIdPartition other = new TopicIdPartition(
            Uuid.fromString("AAAAAAAAAAAAAAAAAAAABQ"), new TopicPartition("other", 0));
        try (TopicBasedRemoteLogMetadataManager manager = new TopicBasedRemoteLogMetadataManager()) {
            manager.configure(Map.of(
                "broker.id", 9,
                "log.dir", arguments[5],
                "remote.log.metadata.topic.num.partitions", arguments[1],
                "remote.log.metadata.common.client.bootstrap.servers", arguments[0]));
            manager.onBrokerReady();
            manager.onPartitionLeadershipChanges(Set.of(partition, other), Set.of());
            while (!manager.isReady(partition) || !manager.isReady(other))
                Thread.sleep(50);
            Iterator<RemoteLogSegmentMetadata> found = manager.listRemoteLogSegments(partition, 0);
            while (found.hasNext()) {
                RemoteLogSegmentMetadata each = found.next();
                System.out.println(String.join(" ", "SEGMENT", each.remoteLogSegmentId().id().toString(),
                    Long.toString(each.startOffset()), Long.toString(each.endOffset()),
                    Integer.toString(each.segmentSizeInBytes()), each.state().name()));
            }
            long highest = manager.highestOffsetForEpoch(partition, 0).orElse(-1L);
            System.out.println("HIGHEST " + highest);
            RemoteLogSegmentId id = new RemoteLogSegmentId(other, Uuid.fromString("AAAAAAAAAAAAAAAAAAAAAg"));
            manager.addRemoteLogSegmentMetadata(new RemoteLogSegmentMetadata(
                id, 1, 10, 5, 9, 6, 77, Map.of(0, 1L))).get();
            manager.updateRemoteLogSegmentMetadata(new RemoteLogSegmentMetadataUpdate(
                id, 7, Optional.of(new CustomMetadata(new byte[] {1, 2})), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 9)).get();
            System.out.println("HIGHEST " + manager.highestOffsetForEpoch(other, 0).orElse(-1L));
        }
    }
}

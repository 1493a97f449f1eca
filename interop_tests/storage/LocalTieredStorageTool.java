import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorage;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorageTraverser;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentFileset;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/**
 * Reads one segment of a folder with Apache Kafka's LocalTieredStorage, deletes it, and copies the same files as another one.
 * Arguments: folder, folder of the log's files, topic, partition, topic id, id of the segment that is there, id of the new one.
 * Prints what it has read as hex, a line for each file, and at last the record batches of all segments as it finds them itself.
 */
public final class LocalTieredStorageTool {
    public static void main(String[] arguments) throws Exception {
        Path log = Path.of(arguments[1]);
        TopicIdPartition partition = new TopicIdPartition(
            Uuid.fromString(arguments[4]), new TopicPartition(arguments[2], Integer.parseInt(arguments[3])));
        try (LocalTieredStorage storage = new LocalTieredStorage()) {
            storage.configure(Map.of("dir", arguments[0], "broker.id", 1));
            RemoteLogSegmentMetadata found = metadata(partition, Uuid.fromString(arguments[5]), log);
            print("SEGMENT", storage.fetchLogSegment(found, 0));
            for (IndexType type : IndexType.values())
                print(type.name(), storage.fetchIndex(found, type));
            storage.traverse(new LocalTieredStorageTraverser() {
                @Override
                public void visitTopicIdPartition(TopicIdPartition each) {
                    System.out.println("PARTITION " + each);
                }

                @Override
                public void visitSegment(RemoteLogSegmentFileset fileset) {
                    try {
                        System.out.println("RECORDS " + fileset.getRemoteLogSegmentId().id() + " " + fileset.getRecords().size());
                    } catch (java.io.IOException error) {
                        throw new java.io.UncheckedIOException(error);
                    }
                }
            });
            storage.deleteLogSegmentData(found);
            storage.copyLogSegmentData(metadata(partition, Uuid.fromString(arguments[6]), log), new LogSegmentData(
                log.resolve("log"), log.resolve("offset"), log.resolve("timestamp"), Optional.of(log.resolve("transaction")),
                log.resolve("producer_snapshot"), ByteBuffer.wrap(Files.readAllBytes(log.resolve("leader_epoch")))));
        }
    }

    private static RemoteLogSegmentMetadata metadata(TopicIdPartition partition, Uuid id, Path log) throws Exception {
        return new RemoteLogSegmentMetadata(new RemoteLogSegmentId(partition, id), 100, 199, 5, 1, 6,
            (int) Files.size(log.resolve("log")), Map.of(4, 100L));
    }

    private static void print(String name, InputStream stream) throws Exception {
        try (stream) {
            System.out.println(name + " " + HexFormat.of().formatHex(stream.readAllBytes()));
        }
    }
}

"""Creates the files of a new partition in a worker thread, because creating a file may take a millisecond.

The directory gets a name with the suffix for deletion. So the next start, of this broker or of Apache Kafka, removes
what a crash leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.log.checkpoint import PARTITION_METADATA_FILE, format_partition_metadata
from kafkacompat.log.directory import DELETE_SUFFIX, LogDirectory
from kafkacompat.log.log_segment import LOG_SUFFIX, file_stem

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.ports import Disk


class Preparation:
    """ports.PreparedLog: an empty log from offset 0 on, with its topic id."""

    __slots__ = ("_disk", "directory", "made", "path", "topic_id", "topic_partition")

    def __init__(
        self, disk: Disk, directory: LogDirectory, topic_partition: TopicPartition, topic_id: Uuid
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.path = directory.marked(topic_partition, DELETE_SUFFIX)
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.made = False

    def run(self) -> None:
        """Create the files. Blocks; any thread. Disk errors are ignored, because opening the log raises them again."""
        try:
            self._disk.make_directory(self.path)
            self._disk.open(file_stem(self.path, 0) + LOG_SUFFIX, create=True).close()
            self._disk.write_atomic(
                f"{self.path}/{PARTITION_METADATA_FILE}",
                format_partition_metadata(self.topic_id),
                sync=False,
            )
        except OSError:
            return
        self.made = True

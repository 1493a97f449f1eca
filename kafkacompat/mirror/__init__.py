"""Mirrors: topics of another Kafka cluster, byte for byte, with the same offsets and the same leader epochs in their batches.

The words follow KIP-1279 (cluster mirroring), which is not released: nothing of it is on the wire. A mirror is a name and some
topics. What a topic is mirrored from, and whether it follows, are settings of the topic (mirror.*), so the metadata log keeps
them, and every broker knows them with the topic's roles. The command `mirror` sets them. States: mirroring, paused (read-only,
and does not follow), stopped (an ordinary topic; this is the fail-over).

The leader of a partition here fetches from the leader there, as a consumer that reads everything below the high watermark, and
appends the batches unopened. Its log end is where it goes on, so a restart or another leader here needs no position. The
followers here replicate from it as always. Everything else that would append is refused (POLICY_VIOLATION).

Two kinds of leader epochs
- The source's epochs are in the batches, and therefore in the epoch cache of the log. The source gives each (epoch, offset) to
  one batch only. So replicas here find where they diverge by the source's epochs, whoever led here when a batch came.
- The epochs of the leaders here decide who may lead, fetch and follow. While a topic is a mirror they are in no batch and not in
  the epoch cache. They begin at mirror.leader.epoch, a multiple of 2**20 above all epochs of the source at that time. So
  they are higher than the source's, before and after the fail-over, and the order of epochs in a log never turns back.
- A batch of the source that has reached mirror.leader.epoch is not appended: the partition fails, which its leader logs.

Truncation. Each fetch carries the epoch of the last batch here (last fetched epoch, KIP-595). A source that has lost batches by
an unclean election answers with the end of the last common epoch, and the leader here truncates to it. Its followers find the
same by the same epochs.

Stop. From the image with `stopped` on, a leader begins its own epoch at its log end (Partition.take_config):
- Open transactions of the source are aborted by markers in that epoch. KIP-1279 truncates to the last stable offset instead.
- Producer ids of the source are forgotten, each time a replica becomes leader: this cluster gives out the same numbers, and a
  batch must not be taken for a duplicate of a stranger's (UnifiedLog.end_mirror).
- A leader that has not heard of the stop may still append mirrored batches. They have lower epochs, so it truncates them as a
  follower of the new leader, like all that was not replicated.

Nothing that was acknowledged after a stop is lost by mirroring again: a partition with a batch of an epoch from
mirror.leader.epoch on has records of its own, and does not follow any more, whatever mirror.state says.

Turning back (the fail-back). A topic that takes records may follow the one that has mirrored it and taken over. One change of its
settings makes it a mirror with a higher mirror.leader.epoch, and the controller lets all its partitions begin in that epoch, in the
same record batch (controller/mirrored_topics.py). Everything written here before is then below it, so it counts as the source's,
and the truncation above ends it where the two logs part: the source's own epochs are above all that were mirrored. Each turn takes
2**20 epochs.

Topic ids differ from the source's: files belong to a topic id, so an id must not be given again when a mirror is deleted and made
again. The source's id is a setting, and a topic that was made again there is not followed. A broker there that is cut off may
still have an older topic of the name, so the source is asked on.

A source's leader epoch never goes back: metadata with an older one than is known here, or is in the log, comes from a broker
that is cut off from its cluster, and is not taken. Otherwise a mirror could be truncated to what such a broker has, just before
it takes over.

Whoever may create topics names the source. So the credentials of mirror.client.properties are shown only to the brokers that this
file of the node names. With an authorizer, a node connects to no others, and to none without the file.

following.py decides, source.py sends, and manager.py knows which partitions follow. group_offsets.py copies what groups have
committed there.
"""

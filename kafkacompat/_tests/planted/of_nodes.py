"""Bugs to plant in a node's start, in its directories, and in the commands that make, start and stop nodes."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
    PlantedBug(
        "no controller is added while the files of a node are lost",
        "cli/cluster_files.py",
        "            except FileNotFoundError:\n                continue\n",
        "",
        ("_tests/test_cli_cluster.py",),
    ),
    PlantedBug(
        "a full disk empties the settings of a cluster's nodes",
        "cli/cluster_files.py",
        '                write_whole(path, "".join(changed))\n',
        '                path.write_text("".join(changed), "latin-1")\n',
        ("_tests/test_cli_cluster.py",),
    ),
    PlantedBug(
        "a node whose pid the disk refuses goes on unseen",
        "cli/node_process.py",
        "            child.kill()\n            child.wait()\n",
        "",
        ("_tests/test_cli_cluster.py",),
    ),
    PlantedBug(
        "a node that cannot be started keeps a cluster from its others",
        "cli/cluster.py",
        "                if is_first_start:\n                    raise\n",
        "                raise\n",
        ("_tests/test_cli_cluster.py",),
    ),
    PlantedBug(
        "a new controller is stopped though the quorum may count on its vote",
        "cli/node.py",
        '        raise CommandFailed(\n            f"{failure}; node',
        '        processes.stop([node])\n        raise CommandFailed(\n            f"{failure}; node',
        ("_tests/test_cli_cluster.py",),
    ),
    PlantedBug(
        "a directory that log.dirs names twice is taken for two",
        "server/data_directories.py",
        "    if len(set(log_dirs)) < len(log_dirs):",
        "    if False:",
        ("server/_tests/test_directories.py",),
    ),
    PlantedBug(
        "a metadata log that the disk refuses is told of by the system's error alone",
        "server/data_directories.py",
        '    except OSError as error:\n        raise StorageProblem(\n            f"the metadata log',
        '    except KeyError as error:\n        raise StorageProblem(\n            f"the metadata log',
        ("server/_tests/test_start_refused.py",),
    ),
    PlantedBug(
        "a start on a full disk has no index for its active segments",
        "log/segment_recovery.py",
        "    index = _Indexing(segment, may_wait=is_active)",
        "    index = _Indexing(segment, may_wait=False)",
        ("log/_tests/test_full_start.py",),
    ),
    PlantedBug(
        "a start on a full disk takes a part of an index for one of a closed segment",
        "log/segment_recovery.py",
        "        is_active = at == len(segments) - 1",
        "        is_active = True",
        ("log/_tests/test_full_start.py",),
    ),
    PlantedBug(
        "an index that waits for room is missed, and asked of the full disk",
        "log/segment_recovery.py",
        "        if segment.indexes.wait_for_their_files():",
        "        if False:",
        ("log/_tests/test_full_start.py",),
    ),
    PlantedBug(
        "a start on a full disk ends at a producer snapshot",
        "log/segment_recovery.py",
        "            with spared_on_a_full_disk():",
        "            if True:",
        ("log/_tests/test_full_start.py",),
    ),
    PlantedBug(
        "a partition that there is no room to open takes its directory along",
        "log/start.py",
        "if is_of_the_directory(task.result) and not self.is_short(task.result):",
        "if is_of_the_directory(task.result):",
        ("log/_tests/test_full_start.py",),
    ),
    PlantedBug(
        "each heartbeat to a controller without room leaves a stack in the log",
        "node/heartbeats.py",
        "(ChannelError, NotController, OSError)",
        "(ChannelError, NotController)",
        ("node/_tests/test_heartbeats.py",),
    ),
    PlantedBug(
        "a node without log directories ends with a stack",
        "server/raft_server.py",
        "    CheckpointCorrupt,\n    DirectoryFailed,\n",
        "    CheckpointCorrupt,\n",
        ("server/_tests/test_directories.py",),
    ),
)

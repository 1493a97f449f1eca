"""Bugs to plant in a node's start, in its directories, and in the commands that make, start and stop nodes."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

BUGS = (
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
)

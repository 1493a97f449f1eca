"""Bugs to plant in what operators meet: the image's environment, logs, the doctor."""

from __future__ import annotations

from kafkacompat._tests.planted.bug import PlantedBug

DOCTOR = "_tests/test_cli_doctor.py"
ENTRY_POINT = "container/_tests/test_entry_point.py"
ENVIRONMENT = "container/_tests/test_environment.py"
NODE_LOG = "_tests/test_cli_node_log.py"

BUGS = (
    PlantedBug(
        "a log file that another program moved is written on, unseen",
        "cli/node_log.py",
        "        self._follow_path()\n",
        "",
        (NODE_LOG,),
    ),
    PlantedBug(
        "a full disk leaves a part of an entry",
        "cli/node_log.py",
        "        self._let_go(cut=True)",
        "        self._let_go()",
        (NODE_LOG,),
    ),
    PlantedBug(
        "a text of a client begins an entry of its own",
        "cli/log_format.py",
        """        return text.replace("\\n[", "\\n\\t[")""",
        "        return text",
        (NODE_LOG,),
    ),
    PlantedBug(
        "who reads JSON lines gets the reason of a failed start as another line",
        "cli/start.py",
        "                sys.exit(1)\n",
        "                pass\n",
        (NODE_LOG,),
    ),
    PlantedBug(
        "a line of a value is a setting of its own",
        "container/environment.py",
        """    return ("\\n" if all(map(_goes_on, lines[:-1])) else "\\\\n").join(lines)""",
        """    return "\\n".join(lines)""",
        (ENVIRONMENT,),
    ),
    PlantedBug(
        "a backslash at the end of a value takes the next setting in",
        "container/environment.py",
        "        lines[-1] = lines[-1][:-1]\n",
        "        pass\n",
        (ENVIRONMENT,),
    ),
    PlantedBug(
        "a node that hangs behind TLS is healthy",
        "container/health.py",
        "            context.wrap_socket(plain).close()\n",
        "            pass\n",
        ("container/_tests/test_health.py",),
    ),
    PlantedBug(
        "metrics of a container listen on its loopback interface",
        "container/environment.py",
        "    if variables.get(METRICS_PORT) and not variables.get(METRICS_HOST):",
        "    if False:",
        (ENVIRONMENT,),
    ),
    PlantedBug(
        "passwords in files are read as ISO 8859-1",
        "container/__main__.py",
        """    text = _utf8_text(path)
    return None if text is None else text.rstrip("\\n")""",
        """    text = _text(path)
    return None if text is None else text.rstrip("\\n")""",
        (ENTRY_POINT,),
    ),
    PlantedBug(
        "the doctor takes the limit of its own process for the node's",
        "cli/examination.py",
        "    limit = _descriptor_limit_of(pid) if pid else None\n",
        "    limit = None\n",
        (DOCTOR,),
    ),
    PlantedBug(
        "the doctor says nothing of what it may not ask",
        "cli/diagnosis.py",
        "        found += _refused(cluster.refused)\n",
        "",
        (DOCTOR,),
    ),
)

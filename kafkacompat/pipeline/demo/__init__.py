"""The demo: a broker, traffic, collector, jobs and page as processes, and a table on the terminal with their state.

`plan` chooses the processes (pure), `child_processes` runs and ends them, `topic_sizes` asks the broker, `board` formats the
table (pure).
"""

"""The demo: a broker, traffic, collector, jobs and page as processes, and a board on the terminal that tells how they do.

`plan` says which processes (pure), `children` runs and ends them, `topic_sizes` asks the broker, `board` writes it down (pure).
"""

"""The collector: ships the lines of growing files to a topic, each at least once and always with the same event id.

`following` decides (pure), `disk` reads files, `shipping` talks to the broker, `running` has the loop.
"""

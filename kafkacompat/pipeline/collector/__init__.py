"""The collector: ships the lines of growing files to a topic, each at least once and always under the same event id.

`following` decides (pure), `disk` looks at files, `shipping` talks to the broker, `running` turns the loop.
"""

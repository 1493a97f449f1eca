"""The generator: realistic traffic of a shop's web site from one seed.

`traffic` makes the events (pure, the same for the same seed), from `visitors`, `access_lines` and `services`. `pace`
decides when each is due. `sending` and `access_log` write them to topics and to a rotated file. `data_set` replays
recorded events.
"""

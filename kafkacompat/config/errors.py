"""The only error type of the settings.

It has the setting's name, its value, and the reason.
"""

from __future__ import annotations


class ConfigError(Exception):
    """An invalid setting.

    `setting` is its name, `value` the given value (None if the value is not the cause or must not be shown), `message`
    the reason. The text has Kafka's form "Invalid value V for configuration S: reason". With `whole` the message is
    the complete text.
    """

    def __init__(self, setting: str, value: object, message: str, *, whole: bool = False) -> None:
        super().__init__(
            message if whole else f"Invalid value {value} for configuration {setting}: {message}"
        )
        self.setting = setting
        self.value = value
        self.message = message

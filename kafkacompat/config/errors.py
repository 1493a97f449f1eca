"""The one error of the settings.

It says which setting is wrong, with which value, and why.
"""

from __future__ import annotations


class ConfigError(Exception):
    """A setting that cannot be taken.

    `setting` is its name, `value` what was given (None when the value is not to blame or must not be shown),
    `message` the reason. The text follows Kafka's form "Invalid value V for configuration S: reason"; with
    `whole` the message is the text by itself.
    """

    def __init__(self, setting: str, value: object, message: str, *, whole: bool = False) -> None:
        super().__init__(
            message if whole else f"Invalid value {value} for configuration {setting}: {message}"
        )
        self.setting = setting
        self.value = value
        self.message = message

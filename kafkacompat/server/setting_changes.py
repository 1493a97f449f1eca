"""When the listeners of a node must take its settings again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kafkacompat.controller.image import ConfigResourceType, MetadataImage

if TYPE_CHECKING:
    from kafkacompat.node.settings import NodeSettings


class Change(Enum):
    NONE = "nothing is to do"
    STATED_AGAIN = "the values are the same, but the files that they name may have changed (KAFKA-14136)"
    OTHER_VALUES = "a setting has another value"


class SettingChanges:
    """Follows the image for one part of a node. The settings must have the image already."""

    __slots__ = ("_effective", "_resource", "_settings", "_stated")

    def __init__(self, settings: NodeSettings, node_id: int) -> None:
        self._settings = settings
        self._resource = (int(ConfigResourceType.BROKER), str(node_id))
        self._effective = settings.effective
        self._stated: Mapping[str, str] | None = None
        """This node's dynamic settings in the image."""

    def in_image(self, image: MetadataImage) -> Change:
        """The change since the last call."""
        stated = image.configs.get(self._resource)
        is_stated_again = stated is not self._stated
        self._stated = stated
        if self._settings.effective is not self._effective:
            self._effective = self._settings.effective
            return Change.OTHER_VALUES
        return Change.STATED_AGAIN if is_stated_again else Change.NONE

"""The file system that holds the checkpoints: folders of small files, every change a place where a driver can die."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.model.world import World

Tree = dict[str, dict[str, bytes]]


class ModelFiles:
    """Files (ingest/files.py) in memory: name and content by folder."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.folders: Tree = {}

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/"
        below = {each[len(prefix) :].split("/", 1)[0] for each in self.folders if each.startswith(prefix)}
        return sorted({*self.folders.get(folder, ()), *below})

    def read(self, path: str) -> bytes | None:
        folder, _, name = path.rpartition("/")
        return self.folders.get(folder, {}).get(name)

    def stamp(self, path: str) -> str | None:
        raise NotImplementedError("the model's logs are read without files")

    def write(self, path: str, data: bytes) -> None:
        self.world.point("file")
        self.put(path, data)

    def put(self, path: str, data: bytes) -> None:
        """Without a place to die at."""
        folder, _, name = path.rpartition("/")
        self.folders.setdefault(folder, {})[name] = data

    def parquet(self, path: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        raise NotImplementedError("the model keeps no Parquet files")

    def move(self, source: str, target: str) -> None:
        self.world.point("move")
        if self.names(target):
            raise OSError(f"{target} exists")
        for folder, content in self.take(source).items():
            self.folders[target + folder] = content

    def take(self, root: str) -> Tree:
        """Remove a folder with all below it; returns it, relative to `root`."""
        found = [each for each in self.folders if each == root or each.startswith(f"{root}/")]
        return {each[len(root) :]: self.folders.pop(each) for each in found}

    def copy(self, root: str) -> Tree:
        """A copy of a folder with all below it, relative to `root`."""
        found = [each for each in self.folders if each == root or each.startswith(f"{root}/")]
        return {each[len(root) :]: dict(self.folders[each]) for each in found}

    def replace(self, root: str, tree: Tree) -> None:
        """Put a copy in the place of a folder."""
        self.take(root)
        for folder, content in tree.items():
            self.folders[root + folder] = dict(content)

    def remove(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self.folders.get(folder, {}).pop(name, None)

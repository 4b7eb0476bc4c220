"""A ZooKeeper of one dictionary: nodes with versions and owners, sessions that expire, transactions."""

from actors.messages.registering import Node, Op, ReadTree, Refused, Transact, Transacted, TreeRead


class Zoo:
    """All that is there: data, version and owning session (0: none) by path."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int, int]] = {}
        self.log: list[tuple[int, list[Op]]] = []
        self._sessions = 0

    def begin(self) -> int:
        """A new session."""
        self._sessions += 1
        return self._sessions

    def expire(self, session: int) -> None:
        """What goes with it goes."""
        self.nodes = {path: node for path, node in self.nodes.items() if node[2] != session}

    def ensure(self, path: str) -> None:
        """Make a folder, and those around it."""
        parts = path.split("/")[1:]
        for count in range(1, len(parts) + 1):
            self.nodes.setdefault("/" + "/".join(parts[:count]), (b"", 0, 0))

    def children(self, path: str) -> set[str]:
        begin = f"{path}/"
        return {one[len(begin) :] for one in self.nodes if one.startswith(begin) and "/" not in one[len(begin) :]}

    def read(self, session: int, asked: ReadTree) -> TreeRead:
        """As the lane does it."""
        for folder in asked.folders:
            self.ensure(folder)
        self.ensure(asked.nodes[0].rpartition("/")[0])
        names = {folder: self.children(folder) for folder in asked.folders}
        paths = [*asked.nodes]
        paths += [f"{folder}/{name}/{leaf}" for folder, its in names.items() for name in its for leaf in asked.leaves]
        found = {path: self.nodes[path] for path in paths if path in self.nodes}
        nodes = {path: Node(data, version, owner == session) for path, (data, version, owner) in found.items()}
        return TreeRead(asked.serial, nodes, names)

    def transact(self, session: int, asked: Transact) -> Transacted:
        """All of it, or nothing."""
        assert len(asked.ops) <= 310
        for folder in asked.folders:
            self.ensure(folder)
        before = dict(self.nodes)
        for op in asked.ops:
            if not self._do(session, op):
                self.nodes = before
                return Transacted(asked.serial, Refused(op.path, "it stands otherwise"))
        self.log.append((session, asked.ops))
        return Transacted(asked.serial)

    def _do(self, session: int, op: Op) -> bool:
        known = self.nodes.get(op.path)
        if op.kind == "create":
            parent = op.path.rpartition("/")[0]
            if known is not None or parent not in self.nodes or self.nodes[parent][2]:
                return False
            self.nodes[op.path] = op.data, 0, session if op.is_ephemeral else 0
            return True
        if known is None or op.version not in (-1, known[1]):
            return False
        if op.kind == "set":
            self.nodes[op.path] = op.data, known[1] + 1, known[2]
        elif op.kind == "delete":
            if self.children(op.path):
                return False
            del self.nodes[op.path]
        return True

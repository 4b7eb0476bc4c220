"""A loopback proxy in front of one node: passes bytes on, late if wanted, and can be cut."""

import contextlib
import socket
import threading
import time


class Proxy:
    """Listens on `port` for the node on `target`."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.delay_s = 0.0
        self._is_cut = False
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def cut(self) -> None:
        """Nothing passes any more, and what is open breaks."""
        self._is_cut = True
        with self._lock:
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """It passes again."""
        self._is_cut = False

    def close(self) -> None:
        """No more; every thread and socket is gone when it returns."""
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(near,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            if self._is_cut:
                return
            with socket.create_connection(("127.0.0.1", self._target), timeout=5) as far:
                with self._lock:
                    self._sockets |= {near, far}
                back = threading.Thread(target=self._pass_on, args=(far, near))
                back.start()
                self._pass_on(near, far)
                back.join()
                with self._lock:
                    self._sockets -= {near, far}

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            source.settimeout(None)
            while data := source.recv(1 << 16):
                if self.delay_s:
                    time.sleep(self.delay_s)
                if self._is_cut:
                    break
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

"""A program at a pseudo-terminal of its own: what a person types and sees."""
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time

PROMPT = "\n>>> "  # a new one; a line that is drawn anew begins with a carriage return
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z~]|\x1b[=>]")


class Terminal:
    """`pipe_output`: standard output is a pipe, and only the rest is the terminal."""

    def __init__(self, command, env=None, pipe_output=False, timeout=120):
        self.timeout, self.seen, self.at = timeout, b"", 0
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        environment = dict(os.environ, TERM="xterm", **(env or {}))
        self.process = subprocess.Popen(["setsid", "-c", *command], stdin=slave, stderr=slave, env=environment,
                                        stdout=subprocess.PIPE if pipe_output else slave)
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        os.close(self.master)

    def type(self, text):
        os.write(self.master, text.encode() if isinstance(text, str) else text)

    def line(self, text):
        """A line, and the answer up to the next prompt."""
        self.type(text + "\r")
        return self.until(PROMPT)

    def _more(self, wait):
        if not select.select([self.master], [], [], wait)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the other end is closed
            data = b""
        self.seen += data
        return data != b""

    def until(self, text):
        """What comes up to `text`, and it; escapes stay in."""
        end, want = time.monotonic() + self.timeout, text.encode()
        while want not in self.seen[self.at:]:
            if time.monotonic() > end or (not self._more(0.2) and self.process.poll() is not None):
                raise AssertionError(f"{text!r} did not come; there was {self.seen[self.at:][-600:]!r}")
        stop = self.seen.index(want, self.at) + len(want)
        part, self.at = self.seen[self.at:stop], stop
        return part.decode(errors="replace")

    def quiet(self, seconds):
        """What comes until nothing has for so long."""
        while self._more(seconds):
            pass
        part, self.at = self.seen[self.at:], len(self.seen)
        return part.decode(errors="replace")

    def ends(self):
        """The exit status."""
        end = time.monotonic() + self.timeout
        while self.process.poll() is None and time.monotonic() < end:
            self._more(0.1)
        while self._more(0):  # what it said last
            pass
        return self.process.wait(1)


def plain(text):
    return ESCAPE.sub(b"", text.encode()).decode().replace("\r\n", "\n").replace("\r", "")

"""A GGUF model in its own process: if its library crashes, only the stage fails. A request and its reply are pickled
objects. The process ends when its pipe closes, for example because the studio ended.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from contextlib import suppress
from typing import Any

from core.errors import CannotLoad, UserError, out_of_memory
from core.model_sections import ROOT
from core.settings import LanguageSettings
from pipeline.models.language import GgufModel, cannot_run, which_build
from pipeline.models.weights import locate, no_room
from pipeline.profiles.text_sections import GgufLanguage
from pipeline.seams import LanguageRequest

LEAVING_SECONDS = 10
"""Maximum seconds that the process may take to end after its pipe is closed. Then it is killed."""


class GgufProcess:
    """`GgufModel` behind a pipe, one call at a time. The next call restarts a process that ended."""

    def __init__(self, section: GgufLanguage) -> None:
        self.name = section.title
        self._section = section
        self._lock = threading.Lock()
        self._file = locate("language model", section)
        self._build = which_build(section.gpu_layers)
        self._process = self._start()

    @property
    def pid(self) -> int:
        """Process ID of the process that takes the next call."""
        return self._process.pid

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        """See `GgufModel.complete`. Raises UserError if the process ends before its reply."""
        # The process may not know the module in which a stage defines its settings.
        plain = LanguageSettings.model_validate(settings.model_dump(include=set(LanguageSettings.model_fields)))
        return str(self._call("complete", request, plain))

    def score(self, text: str) -> float:
        return float(self._call("score", text))

    def close(self) -> None:
        """End the process, and free its memory. The next call starts another one."""
        with self._lock:
            _end(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pipeline.models.language_process"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        weakref.finalize(self, _end, process)
        try:
            _ask(process, "load", self._section, str(self._file), self._build)
        except EOFError as error:
            raise self._cannot_load(process) from error
        except BaseException:
            _end(process)
            raise
        return process

    def _call(self, name: str, *arguments: Any) -> Any:
        with self._lock:
            if self._process.poll() is not None:
                _end(self._process)
                self._process = self._start()
            try:
                return _ask(self._process, name, *arguments)
            except EOFError as error:
                raise _died(self._process) from error
            except (UserError, RuntimeError):
                raise
            except BaseException:  # a late reply would be taken for that of the next call
                _end(self._process)
                raise

    def _cannot_load(self, process: subprocess.Popen[bytes]) -> UserError:
        _end(process)
        if process.returncode == -signal.SIGKILL:
            return no_room(f"the language model at {self.name}")
        if self._section.gpu_layers:
            return CannotLoad(
                f"The language model at {self.name} could not be put on the GPU ({_how(process)}; CUDA's message is "
                "in the log): lower gpu_layers in the profile, or set it to 0."
            )
        return cannot_run(self._section, self._file, f"its process ended: {_how(process)}")


def _ask(process: subprocess.Popen[bytes], name: str, *arguments: Any) -> Any:
    """Call the model's method `name` in the process. Return its result. Raises EOFError if the process ends."""
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump((name, *arguments), process.stdin)
        process.stdin.flush()
        reply = pickle.load(process.stdout)
    except (OSError, pickle.UnpicklingError) as error:
        raise EOFError from error
    if isinstance(reply, Exception):
        raise reply
    return reply


def _died(process: subprocess.Popen[bytes]) -> UserError:
    _end(process)
    if process.returncode == -signal.SIGKILL:
        return UserError(
            "The process of the language model was killed in the middle of a reply, most likely for lack of memory: "
            "end other programs that use memory, and run the stage again."
        )
    return UserError(
        f"The process of the language model ended in the middle of a reply ({_how(process)}): run the stage again. "
        "If that happens every time, choose another model in the profile."
    )


def _how(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process, also in the middle of a reply. Harmless if it has ended."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):  # the pipe may still hold data for a process that has ended
        process.stdin.close()
    try:
        process.wait(LEAVING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


# The process itself


def main() -> None:
    """Answer the requests from the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes the pipe
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the library's prints go to stderr, so that they do not mix with replies
    requests: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    model: GgufModel | None = None
    while True:
        name, *arguments = requests.get()
        reply: object = None
        try:
            if name == "load":
                model = GgufModel(*arguments)
            else:
                reply = getattr(model, name)(*arguments)
        except UserError as error:
            reply = error
        except (RuntimeError, OSError, MemoryError, ValueError) as error:  # any other error ends the process
            if out_of_memory(error):
                reply = UserError(str(no_room("what the language model needs for this reply")))
            else:
                traceback.print_exc()
                reply = RuntimeError(f"{type(error).__name__}: {error}")
        pickle.dump(reply, replies)
        replies.flush()


def _listen(requests: queue.SimpleQueue[tuple[Any, ...]]) -> None:
    """Read requests in a thread, so that a closed pipe is noticed even while a reply is written."""
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            requests.put(pickle.load(sys.stdin.buffer))
    os._exit(0)  # sys.exit would end this thread alone, and the main one may be within the library


if __name__ == "__main__":
    main()

"""Child processes: nothing lost on the way, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stagedoor.errors import LaunchError, NotInstalled, ProcessExited
from stagedoor.transports.executables import find_executable, read_version
from stagedoor.transports.guard.processes import strategy
from stagedoor.transports.launch import SCRATCH, EndInput, Launch, Signal, Stalled, Step
from stagedoor.transports.process import LOST_GUARD, ChildProcess, Silence
from stagedoor.transports.tap import record_lines
from stagedoor.wire.shapes import UnknownMessage
from tests.processes import is_running, parent_of


def python(code: str, **fields: object) -> Launch:
    return Launch(argv=(sys.executable, "-c", code), cwd="/", **fields)  # type: ignore[arg-type]


async def output(launch: Launch, **options: object) -> tuple[list[object], int, str]:
    async with await ChildProcess.start(launch, **options) as process:  # type: ignore[arg-type]
        lines = [line async for batch in process.batches() for line in batch]
        return [*lines], await process.wait(), process.stderr_tail


def until(condition: Callable[[], bool], goal: str) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, f"waited four minutes for: {goal}"
        time.sleep(0.02)  # a poll, bounded above


# A child that leaves a shell in a process session of its own, twice removed, and tells all pids.
FAMILY = """
import os, subprocess, sys, time
inner = subprocess.Popen(
    [sys.executable, "-c", "import subprocess, time; p = subprocess.Popen(['sleep', '600'], start_new_session=True);"
     "print(p.pid, flush=True); time.sleep(600)"],
    start_new_session=True, stdout=subprocess.PIPE, text=True)
orphan = int(inner.stdout.readline())
print(os.getpid(), inner.pid, orphan, flush=True)
if "exit" in sys.argv: sys.exit(0)
if "orphan" in sys.argv: inner.kill(); inner.wait()
time.sleep(600)
"""


def family(*words: str, stop: tuple[Step, ...] = (EndInput(0.1),)) -> Launch:
    return Launch(argv=(sys.executable, "-c", FAMILY, *words), cwd="/", stop=stop)


async def pids_of(process: ChildProcess) -> list[int]:
    async for batch in process.batches():
        line = batch[0]
        assert isinstance(line, bytes)
        return [int(word) for word in line.split()]
    raise AssertionError(process.stderr_tail)


@pytest.mark.parametrize("kind", ["pipe", "socketpair"])
def test_input_output_errors_and_exit_code(kind: str) -> None:
    code = "import sys; print(sys.stdin.read()); print('oh', file=sys.stderr); sys.exit(3)"
    launch = python(code, stdin=b"one\ntwo", stdout=kind)
    assert asyncio.run(output(launch)) == ([b"one", b"two"], 3, "oh\n")


def test_null_input() -> None:
    assert asyncio.run(output(python("import sys; print(repr(sys.stdin.read()))", stdin="null")))[0] == [b"''"]


def test_a_conversation() -> None:
    async def talk() -> list[object]:
        code = (
            "print('up', flush=True)\nimport sys\nfor x in sys.stdin: print('got', x, end='', flush=True)\nprint('end')"
        )
        output: list[object] = []
        async with await ChildProcess.start(python(code)) as process:
            async for batch in process.batches():
                output += batch
                if output[-1] == b"up":
                    await process.send(b"a")
                elif output[-1] == b"got a":
                    await process.end_input()
            assert await process.wait() == 0
        return output

    assert asyncio.run(talk()) == [b"up", b"got a", b"end"]


def test_a_conversation_can_be_recorded() -> None:
    output: list[tuple[str, bytes]] = []

    async def main() -> None:
        code = "import sys\nfor line in sys.stdin: print('got', line, end='', flush=True)"
        with record_lines(lambda direction, line: output.append((direction, line))):
            process = await ChildProcess.start(python(code))
        async with process:
            await process.send(b"a")
            async for _ in process.batches():
                await process.end_input()

    asyncio.run(main())
    assert output == [("in", b"a"), ("out", b"got a")]


def test_environment_and_scratch_files(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib; print(os.environ.get('A'), os.environ.get('SECRET_KEY'), os.environ.get('KEEP'),"
        "os.getcwd() == os.environ['PWD']); print(pathlib.Path(sys.argv[1]).read_text());"
        "print(os.environ['F'] == sys.argv[1])"
    )
    launch = Launch(
        argv=(sys.executable, "-c", code, f"{SCRATCH}/policy.toml"),
        cwd=str(tmp_path),
        env={"A": "1", "F": f"{SCRATCH}/policy.toml"},
        unset=("SECRET*",),
        files={"policy.toml": b"rules"},
    )

    async def main() -> tuple[list[object], str]:
        base = {"SECRET_KEY": "x", "KEEP": "y", "A": "0"}
        async with await ChildProcess.start(launch, base_env=base) as process:
            assert oct(Path(process.scratch).stat().st_mode)[-3:] == "700"
            return [line async for batch in process.batches() for line in batch], process.scratch

    lines, scratch = asyncio.run(main())
    assert lines == [b"1 None y True", b"rules", b"True"]
    assert not Path(scratch).exists()


@pytest.mark.parametrize("kind", ["pipe", "socketpair"])
def test_a_child_that_exits_without_draining_loses_nothing_to_a_late_reader(kind: str) -> None:
    async def main() -> None:
        # 600 kB is more than a default pipe holds; the writer does not block and does not wait, as some CLIs do.
        code = "import os; os.set_blocking(1, False); os.write(1, b'x' * 600_000 + b'\\nend\\n')"
        async with await ChildProcess.start(python(code, stdout=kind)) as process:
            assert await process.wait() == 0
            lines = [line async for batch in process.batches() for line in batch]
            assert [len(line) for line in lines if isinstance(line, bytes)] == [600_000, 3]

    asyncio.run(main())


def test_lines_over_the_bound_are_reported_and_the_stream_goes_on() -> None:
    lines, code, _ = asyncio.run(output(python("print('x' * 5000); print('ok')"), max_line=1000))
    assert lines == [UnknownMessage(b"x" * 1000, "a line of 5000 bytes is larger than the limit of 1000"), b"ok"]
    assert code == 0


def test_stderr_is_drained_and_bounded() -> None:
    code = "import sys; sys.stderr.write('x' * 3_000_000 + 'last words'); print('done')"
    lines, _, stderr = asyncio.run(output(python(code)))
    assert lines == [b"done"]
    assert stderr.endswith("last words")
    assert len(stderr) == 64 * 1024


def test_a_stall_is_reported_but_work_is_not() -> None:
    async def main(code: str) -> list[object]:
        async with await ChildProcess.start(python(code, stop=(Signal(signal.SIGKILL),))) as process:
            output: list[object] = []
            async for batch in process.batches(quiet=2.0):
                output += batch
                if b"end" in output or (b"up" in output and isinstance(output[-1], Stalled)):
                    return output
            return output

    sleeping = asyncio.run(main("print('up', flush=True); import time; time.sleep(600)"))
    assert [item for item in sleeping if not isinstance(item, Stalled)] == [b"up"]
    assert isinstance(sleeping[-1], Stalled)
    if strategy() == "portable":
        return  # ps counts processor time in whole seconds, of which a busy machine gives a child few
    working = "import time\nend = time.process_time() + 4\nwhile time.process_time() < end: pass\nprint('end')"
    assert asyncio.run(main(working)) == [b"end"]


def test_silence_is_told_less_and_less_often_and_ends_with_a_sign_of_life() -> None:
    silence = Silence()
    # After each half of 10 seconds: the processor time used so far, and what is told.
    looks = [(7, 0), (7, 10), (7, 0), (7, 20), (7, 0), (7, 0), (7, 0), (7, 40), (8, 0), (8, 0), (8, 10), (9, 0)]
    reports = [silence.lasted if silence.is_news(10, ticks) else 0 for ticks, _ in looks]
    assert reports == [seconds for _, seconds in looks]
    assert silence.is_news(10, 9) is False
    silence.end()  # it was told something
    assert [silence.is_news(10, 9) for _ in range(3)] == [False, True, False]


def test_sending_to_a_child_that_has_ended() -> None:
    async def main() -> None:
        async with await ChildProcess.start(python("import sys; sys.exit('no thanks')")) as process:
            await process.wait()
            with pytest.raises(ProcessExited, match="accepts no more input: no thanks") as caught:
                await process.send(b"x" * 2**21)
            assert caught.value.code == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (Launch(argv=("/nonexistent/agent",), cwd="/"), "could not start '/nonexistent/agent': No such file"),
        (Launch(argv=("/etc/passwd",), cwd="/"), "could not start '/etc/passwd': Permission denied"),
        (Launch(argv=("/bin/sh",), cwd="/nonexistent"), "the working directory '/nonexistent' does not exist"),
    ],
)
def test_what_cannot_be_started_says_why(launch: Launch, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        asyncio.run(output(launch))


@pytest.mark.usefixtures("each_strategy")
class TestNothingIsLeftRunning:
    def test_after_stop(self) -> None:
        async def main() -> list[int]:
            process = await ChildProcess.start(family())
            pids = await pids_of(process)
            assert all(map(is_running, pids))
            await asyncio.gather(process.stop(), process.stop())
            assert process.left_running == 0
            return pids

        assert [pid for pid in asyncio.run(main()) if is_running(pid)] == []

    def test_an_orphan_in_its_own_session(self) -> None:
        async def main() -> list[int]:
            async with await ChildProcess.start(family("orphan")) as process:
                return await pids_of(process)

        assert [pid for pid in asyncio.run(main()) if is_running(pid)] == []

    def test_when_the_child_itself_exits(self) -> None:
        async def main() -> list[int]:
            async with await ChildProcess.start(family("exit")) as process:
                pids = await pids_of(process)
                assert await process.wait() == 0
            return pids

        assert [pid for pid in asyncio.run(main()) if is_running(pid)] == []

    def test_when_the_task_is_cancelled(self) -> None:
        async def main() -> list[int]:
            found: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

            async def work() -> None:
                async with await ChildProcess.start(family()) as process:
                    found.set_result(await pids_of(process))
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            pids = await found
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return pids

        assert [pid for pid in asyncio.run(main()) if is_running(pid)] == []

    def test_when_it_is_abandoned(self) -> None:
        async def main() -> list[int]:
            process = await ChildProcess.start(family())
            pids = await pids_of(process)
            process.abandon()
            return pids

        pids = asyncio.run(main())
        gc.collect()
        until(lambda: not any(map(is_running, pids)), "an abandoned family to end")

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_when_we_are_killed(self, number: int, tmp_path: Path) -> None:
        made, scratch = tmp_path / "made", tmp_path / "scratch"
        made.mkdir()
        scratch.mkdir()
        (made / "link").symlink_to(tmp_path)
        argv, env = [sys.executable, "-c", US, FAMILY, str(made)], {**os.environ, "TMPDIR": str(scratch)}
        ours = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        assert ours.stdout
        with contextlib.ExitStack() as clean_up:
            clean_up.enter_context(ours)
            clean_up.callback(ours.kill)
            pids = [int(word) for word in ours.stdout.readline().split()]
            running = [is_running(pids[0]), is_running(pids[2])]  # the one between them ends by itself
            running += [made.exists(), any(scratch.iterdir())]
            os.kill(ours.pid, number)
            ours.wait()
        assert running == [True, True, True, True]
        until(lambda: not any(map(is_running, pids)), "the family to end after us")
        until(lambda: not any(scratch.iterdir()), "its files to be removed")
        if number != signal.SIGINT:  # that one leaves us the time to remove our folders ourselves
            until(lambda: not made.exists(), "its folders to be removed")


US = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell has started in the background
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
from stagedoor.transports.launch import Launch
from stagedoor.transports.process import ChildProcess
async def main():
    argv, made = (sys.executable, "-c", sys.argv[1], "orphan"), (sys.argv[2],)
    process = await ChildProcess.start(Launch(argv=argv, cwd="/", files={"file": b""}, folders=made))
    async for batch in process.batches():
        print(batch[0].decode(), flush=True)
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
"""


def test_the_ladder_ends_a_child_in_order() -> None:
    async def main(stop: tuple[Step, ...]) -> tuple[int, list[object]]:
        code = (
            "import os, signal, sys, time\n"  # it may be just printing when it is interrupted
            "signal.signal(signal.SIGINT, lambda *_: (os.write(1, b'interrupted\\n'), os._exit(7)))\n"
            "print('up', flush=True)\nsys.stdin.read()\nprint('input ended', flush=True)\ntime.sleep(600)"
        )
        process = await ChildProcess.start(python(code, stop=stop))
        output: list[object] = []
        stopping = None
        async for batch in process.batches():
            output += batch
            stopping = stopping or asyncio.create_task(process.stop())
        assert stopping
        return await stopping, output

    code, output = asyncio.run(main((EndInput(0.2), Signal(signal.SIGINT, 240))))
    assert code == 7
    assert output[0] == b"up"
    assert output[-1] == b"interrupted"
    assert asyncio.run(main((EndInput(0.2),)))[0] == -signal.SIGKILL


@pytest.mark.usefixtures("each_strategy")
@pytest.mark.parametrize("kill", ["guard", "keeper", "both"])
def test_a_guard_that_is_killed_takes_everything_along(kill: str) -> None:
    async def main() -> tuple[list[int], bool, str, int]:
        process = await ChildProcess.start(python(FAMILY))
        async with process:
            [line] = await anext(aiter(process.batches()))
            assert isinstance(line, bytes)
            guard = parent_of(process.pid)
            family = [*map(int, line.split()), guard, parent_of(guard)]
            assert parent_of(family[-1]) == os.getpid()
            for pid in {"guard": [guard], "keeper": [family[-1]], "both": [guard, family[-1]]}[kill]:
                os.kill(pid, signal.SIGKILL)
            code = await asyncio.wait_for(process.wait(), 240)
            return family, process.guard_was_killed, process.stderr_tail.strip(), code

    (agent, inner, orphan, *guards), was_killed, words, code = asyncio.run(main())
    assert (was_killed, words, code) == (True, LOST_GUARD, -signal.SIGKILL)
    promised = [agent, *guards] if kill == "both" else [agent, inner, orphan, *guards]
    try:
        until(lambda: not any(map(is_running, promised)), f"the end of {promised}")
    finally:
        for pid in (inner, orphan):  # where both were killed, those who left the session are not promised to end
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("each_strategy")
def test_where_both_are_killed_the_session_of_the_agent_ends() -> None:
    code = "import subprocess, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); time.sleep(600)"

    async def main() -> list[int]:
        async with await ChildProcess.start(python(code)) as process:
            [line] = await anext(aiter(process.batches()))
            assert isinstance(line, bytes)
            guard = parent_of(process.pid)
            for pid in (parent_of(guard), guard):
                os.kill(pid, signal.SIGKILL)
            await asyncio.wait_for(process.wait(), 240)
            return [process.pid, int(line)]

    pids = asyncio.run(main())
    until(lambda: not any(map(is_running, pids)), "the end of the session")


def test_find_executable(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\necho 'agent 1.20.3 (build 5)'\n")
    program.chmod(0o755)
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    assert find_executable("agent", env=env) == str(program)
    assert find_executable("agent", env={"PATH": "", "HOME": str(tmp_path)}, hints=("~/.",)) == str(program)
    with pytest.raises(NotInstalled, match=r"other was not found. Install it with: npm i other \(looked in the PATH\)"):
        find_executable("other", env=env, install="npm i other")
    with pytest.raises(NotInstalled, match="'/no/such' is not an executable program: correct the path"):
        find_executable("agent", executable="/no/such", env=env)
    assert asyncio.run(read_version(str(program))) == (1, 20, 3)


def test_a_child_that_closes_its_output_and_stays_is_ended() -> None:
    async def main() -> None:
        launch = python("import os, time; print('last', flush=True); os.close(1); time.sleep(600)")
        async with await ChildProcess.start(launch) as process:
            assert [batch async for batch in process.batches()] == [[b"last"]]
            assert (await process.exited(lingering=0.01)).code == -signal.SIGKILL

    asyncio.run(main())

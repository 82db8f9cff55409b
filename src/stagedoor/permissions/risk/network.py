"""Programs that talk to other machines, to containers and to clouds."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from ..paths import Ground, locate
from ..shell.script import ShellCommand
from .effects import Finding, reading, writing
from .unpacking import copied

Look = Callable[[ShellCommand, Ground], list[Finding]]

_UPLOADS = ("-d", "--data", "--data-binary", "--data-raw", "--data-urlencode", "-F", "--form", "-T", "--upload-file",
            "--post-file", "--body-file", "-K", "--config", "--json")  # fmt: skip
_OUTPUTS = ("-o", "--output", "-O", "--output-document", "-P", "--directory-prefix", "--output-dir", "-D",
            "--dump-header", "-c", "--cookie-jar", "--trace", "--trace-ascii")  # fmt: skip
_LEAKS = frozenset({"env", "printenv", "history", "set", "export"})


def _fetch(command: ShellCommand, ground: Ground) -> list[Finding]:
    name, words = command.program, command.words
    found = [Finding("medium", f"{name} uses the network")]
    pairs = [
        (word.partition("=")[0], word.partition("=")[2]) for word in words if word.startswith("--") and "=" in word
    ]
    pairs += list(itertools.pairwise(words))
    pairs += [
        (word[:2], word[2:]) for word in words if re.match(r"^-[dFToOPDcK]\S", word) and not word.startswith("--")
    ]
    for flag, value in pairs:
        if flag in _UPLOADS:
            for path in _uploaded(flag, value):
                if locate(path, command.cwds, ground).place in ("secret", "outside", "system", "protected"):
                    found.append(Finding("high", f"{name} sends {path} over the network"))
        elif flag in _OUTPUTS and not (name == "curl" and flag == "-O") and not value.startswith("-"):
            found += writing(value, command.cwds, ground)
        elif flag == "--unix-socket":
            found += reading(value, command.cwds, ground)
    for word in words[1:]:
        if word.startswith("file://"):
            found += reading(word, command.cwds, ground)
    if _LEAKS & set(command.fed_by):
        found.append(Finding("high", f"{name} gets the environment, which often contains credentials"))
    return found


def _uploaded(flag: str, value: str) -> list[str]:
    if flag in ("-T", "--upload-file", "--post-file", "--body-file", "-K", "--config"):
        return [value]
    return [path.partition(";")[0] for path in re.findall(r"(?:^|=)[@<]([^\s&]+)", value) if path != "-"]


def _copy(command: ShellCommand, ground: Ground) -> list[Finding]:
    name = command.program
    found = [Finding("medium", f"{name} copies between machines or folders"), *_ssh_options(command, ground)]
    names = [word for word in command.words[1:] if not word.startswith("-")]
    local = [word for word in names if not re.match(r"^[\w.@-]+:", word)]
    for path in local:
        found += [f for f in reading(path, command.cwds, ground) if f.risk == "high"]
    if names and names[-1] in local:
        found += writing(names[-1], command.cwds, ground)
        found += copied(command, ground, names[:-1], names[-1:])
    if any(word.startswith("--delete") for word in command.words):
        target = names[-1] if names else "."
        risky = target not in local or locate(target, command.cwds, ground).broad
        found.append(Finding("high" if risky else "medium", f"{name} --delete deletes what the source does not have"))
    return found


def _socket(command: ShellCommand, ground: Ground) -> list[Finding]:
    name = command.program
    words = command.words[1:]
    if any(
        re.fullmatch(r"-[a-zA-Z]*[ec]|--exec|--sh-exec|-[a-zA-Z]*e.*sh", word) for word in words if name != "telnet"
    ):
        return [Finding("high", f"{name} opens a shell for another machine")]
    if name == "socat" and any(re.search(r"\b(exec|system):", word, re.IGNORECASE) for word in words):
        return [Finding("high", f"{name} opens a shell for another machine")]
    return _fetch(command, ground)


def _ssh(command: ShellCommand, ground: Ground) -> list[Finding]:
    found = [Finding("medium", f"{command.program} runs commands on another machine")]
    return found + _ssh_options(command, ground)


_RUNS_LOCALLY = re.compile(
    r"(-o\s*)?\s*(proxycommand|localcommand|permitlocalcommand|knownhostscommand|proxyusefdpass|pkcs11provider|"
    r"securitykeyprovider|xauthlocation|forkafterauthentication|remoteforward|include)[=\s].*",
    re.IGNORECASE | re.DOTALL,
)  # fmt: skip


def _ssh_options(command: ShellCommand, ground: Ground) -> list[Finding]:
    found: list[Finding] = []
    for flag, value in itertools.pairwise([*command.words, ""]):
        option = value if flag == "-o" else flag if flag.startswith("-o") else ""
        if option and _RUNS_LOCALLY.fullmatch(option):
            found.append(Finding("high", f"{command.program} {option} runs a program on this machine"))
        if re.match(r"^-R", flag) and command.program in ("ssh", "autossh"):
            found.append(Finding("high", f"{command.program} -R opens a way in from another machine"))
        if command.program in ("scp", "sftp") and re.match(r"^-[SD]", flag):
            found.append(Finding("high", f"{command.program} {flag} runs the program that is named there"))
        shell = value if flag in ("-e", "--rsh", "--rsync-path") else flag.partition("=")[2]
        named = flag in ("-e", "--rsh", "--rsync-path") or flag.startswith(("--rsh=", "--rsync-path=", "-e="))
        if (
            command.program == "rsync"
            and named
            and not re.fullmatch(r"ssh( -[p46C]\s*\d*| -i [\w./~-]+)*|sudo rsync", shell)
        ):
            found.append(Finding("high", f"rsync {flag} runs the program that is named there"))
    return found


def _container(command: ShellCommand, ground: Ground) -> list[Finding]:
    name, words = command.program, command.words[1:]
    line = " ".join(words)
    if re.search(
        r"--privileged|--(pid|userns|ipc|uts|net|network|cgroupns)[= ]host|--cap-add|--device\b|--security-opt"
        r"|--cgroup-parent|--gpus-all|--volumes-from|docker\.sock|podman\.sock|containerd\.sock|(^|\s)(-H|--host)[= ]",
        line, re.I,
    ):  # fmt: skip
        return [Finding("high", f"{name} turns off the isolation of a container")]
    mounts = [word for word in words if re.match(r"^(~|/|\.)[^:]*:", word)]
    mounts += [word.partition("=")[2] for word in words if word.startswith(("--volume=", "-v="))]
    mounts += [word[2:] for word in words if re.match(r"^-v[~/.]", word)]
    mounts += re.findall(r"(?:source|src)=([^,\s]+)", line)
    for mount in mounts:
        spot = locate(mount.partition(":")[0], command.cwds, ground)
        if (
            spot.place == "protected"
            or spot.place in ("secret", "system", "outside", "device")
            or (spot.broad and spot.place != "workspace")
        ):
            return [Finding("high", f"{name} gives a container access to {mount.partition(':')[0]}")]
    if re.search(
        r"\b(prune|rmi)\b|\bvolume rm\b|\brm\b.*(-f|--force|-v)|\bdown\b.*(-v|--volumes)|\bcompose\b.*\brm\b", line
    ):
        return [Finding("high", f"{name} deletes containers, images or volumes")]
    return [Finding("medium", f"{name} works with containers")]


_CLOUD = re.compile(
    r"\b(delete|destroy|terminate\S*|rb|purge|nuke|drain|uninstall|deprovision|apps:destroy|pg:reset|delete-\S+|remove-\S+)\b"
)


def _cloud(command: ShellCommand, ground: Ground) -> list[Finding]:
    name, line = command.program, " ".join(command.words[1:])
    if _CLOUD.search(line) or re.search(r"\bs3\b.*\b(rm|sync)\b.*(--recursive|--delete)", line):
        return [Finding("high", f"{name} deletes remote resources")]
    if re.search(
        r"\bauth (token|print-access-token|print-identity-token)\b|get-secret-value|get secrets?\b|config view --raw",
        line,
    ):
        return [Finding("high", f"{name} shows credentials")]
    if re.search(r"\bapply\b.*-auto-approve", line):
        return [Finding("high", f"{name} changes remote resources without asking")]
    return [Finding("medium", f"{name} uses a remote service")]


_PUBLISH = {
    "npm": r"publish|unpublish|deprecate|owner|token|adduser|login", "yarn": r"publish|npm publish", "pnpm": r"publish",
    "cargo": r"publish|yank|login|owner", "gem": r"push|yank|owner", "twine": r"upload", "poetry": r"publish",
    "uv": r"publish", "hatch": r"publish", "flit": r"publish",
}  # fmt: skip


def _packages(command: ShellCommand, ground: Ground) -> list[Finding]:
    name, line = command.program, " ".join(w for w in command.words[1:] if not w.startswith("-"))
    if re.match(rf"({_PUBLISH[name]})\b", line):
        return [Finding("high", f"{name} {line.split(' ')[0]} changes what others install")]
    return [Finding("medium", f"{name} may download and run code")]


TABLE: dict[str, Look] = {
    **dict.fromkeys(("curl", "wget", "http", "https", "xh", "aria2c", "fetch", "lynx", "w3m", "ftp"), _fetch),
    **dict.fromkeys(("scp", "rsync", "sftp", "rclone"), _copy),
    **dict.fromkeys(("nc", "ncat", "netcat", "socat", "telnet"), _socket),
    **dict.fromkeys(("ssh", "mosh", "autossh", "sshpass"), _ssh),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "buildah", "ctr", "crictl", "lxc", "incus"),
                    _container),
    **dict.fromkeys(("aws", "gcloud", "gsutil", "az", "kubectl", "oc", "terraform", "tofu", "pulumi", "helm", "heroku",
                     "flyctl", "fly", "vercel", "netlify", "doctl", "gh", "glab", "s3cmd", "mc"), _cloud),
    **dict.fromkeys(_PUBLISH, _packages),
}  # fmt: skip

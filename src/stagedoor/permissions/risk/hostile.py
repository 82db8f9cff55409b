"""Signs of an attack that any program's words may carry: machines that hand out credentials, doors for others, programs
that run with their safety off, variables that put a program in the place of another."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
import urllib.parse

from ..shell.script import ShellCommand
from ..shell.wrappers import SHELLS
from .effects import Finding

_METADATA = frozenset(
    ipaddress.ip_address(address)
    for address in ("100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
                    "fe80::a9fe:a9fe", "fd00:42::42")
)  # fmt: skip
_LINK_LOCAL = ipaddress.ip_network("169.254.0.0/16")  # clouds answer on many addresses of it, and nothing else does
_WRAPS_IPV4 = tuple(ipaddress.IPv6Network(network) for network in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96"))
_METADATA_NAMES = re.compile(
    r"(^|[^\w.-])((rancher-)?metadata(\.google(\.internal)?|\.goog|\.azure\.internal|\.tencentyun\.com|\.platformequinix\.com"
    r"|\.packet\.net|\.internal|\.local)?|(api\.)?metadata\.cloud\.ibm\.com|instance-data(\.ec2\.internal)?)(\.)?(?=[:/]|$)"
    r"|(?<!\d)169[.-]254[.-]\d+[.-]\d+|(?<![0-9a-f])a9fea9fe(?=\.)|computemetadata|latest/meta-data|latest/user-data"
    r"|169\.254\.169\.[\[{]",
    re.IGNORECASE,
)
_HOST = re.compile(r"(?:^|//|@|=|\s|['\"(])(\[[0-9a-fA-F:.%]+\]|[0-9a-fA-FxX.:]{4,45})(?=[:/?#\s'\")]|$)")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*")
_UNSAFE = re.compile(
    r"--?(dangerously[-\w]*|yolo|allow-all(-tools|-paths|-urls)?|trust-all-tools|full-auto|skip-permissions|"
    r"no-permissions|auto-approve|yes-always|bypass-permissions|dangerous[-\w]*|unsafe|disable-sandbox|no-sandbox)(=.*)?"
    r"|(.*=)?(bypassPermissions|danger-full-access|yolo|autoAll|dontAsk)"
)
_AUTONOMOUS = ("--tier", "autonomous")
_OPENS_DOOR = re.compile(r"/dev/(tcp|udp)/|/inet/(tcp|udp)/", re.IGNORECASE)
_SOCKETS = frozenset({"nc", "ncat", "netcat", "socat", "telnet", "openssl", "websocat"})
_SOCKET_CODE = re.compile(
    r"socket|fsockopen|pfsockopen|stream_socket_client|net\.connect|net\.dial|createconnection|tcpsocket|inet_aton"
    r"|io::socket|require\(['\"](net|tls|dgram)|open_connection|pty\.spawn|gen_tcp|tcp-connect|\b(deno|bun)\.connect|ztcp"
    r"|\bspawn (nc|ncat|socat|telnet)\b|webclient", re.IGNORECASE
)  # fmt: skip
_SHELL_CODE = re.compile(
    r"/bin/|\b(ba|z|k|da)?sh\b|cmd\.exe|powershell|dup2|exec|spawn|system|popen|subprocess|fdopen|`|shell|\biex\b|processbuilder",
    re.IGNORECASE,
)
_TAKES_OVER = re.compile(
    r"^(LD_PRELOAD|LD_AUDIT|LD_LIBRARY_PATH|GCONV_PATH|DYLD_INSERT_LIBRARIES|DYLD_LIBRARY_PATH|BASH_ENV|ENV|PROMPT_COMMAND|"
    r"GIT_SSH|GIT_SSH_COMMAND|GIT_PROXY_COMMAND|GIT_ASKPASS|GIT_EXEC_PATH|GIT_CONFIG\w*|GIT_EXTERNAL_DIFF|"
    r"GIT_TEMPLATE_DIR|SSH_ASKPASS|SUDO_ASKPASS|RSYNC_RSH|CVS_RSH|DOCKER_HOST|PYTHONSTARTUP|PERL5OPT|PERL5DB|RUBYOPT|"
    r"NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|RUSTC_WRAPPER|RUSTC_WORKSPACE_WRAPPER|LESSOPEN|LESSCLOSE|"
    r"CARGO_\w+_(RUNNER|LINKER)|CARGO_BUILD_RUSTC\w*|npm_config_(script_shell|shell|node_options|git|prefix)|"
    r"NPM_CONFIG_(SCRIPT_SHELL|SHELL|NODE_OPTIONS|GIT|PREFIX)|SHELLOPTS|BASHOPTS|BASH_FUNC_\w+.*)$"
)
_OPTIONS_THAT_RUN = re.compile(
    r"-(toolexec|exec|vettool|javaagent|agentpath|agentlib)\b|--require\b|-r[ =]?\.?/|--eval\b|-C\s*linker=|-fplugin="
    r"|--import\b|--loader\b|-Xbootclasspath|\blinker=/|-B/tmp"
)
"""In variables that hold options for programs (``GOFLAGS``, ``MAVEN_OPTS``)."""
_LOADS = re.compile(
    r"^(PYTHON\w+|PERL5?LIB|RUBYLIB|NODE_PATH|CLASSPATH|LUA_C?PATH|GEM_(PATH|HOME)|BUNDLE_\w+|CARGO_HOME|CC|CXX|LD|AR|"
    r"RUSTC?\w*|CGO_\w+|GO(FLAGS|ROOT|TOOLCHAIN)|MAKE\w*|PAGER|MANPAGER|EDITOR|VISUAL|BROWSER|SHELL|GIT_\w+|TERMINFO|"
    r"NPM_CONFIG_\w+|npm_config_\w+|JAVA_HOME|MAVEN_\w+|GRADLE_\w+|COMPOSER_\w+|XDG_CONFIG_\w+|ZDOTDIR|HOME)$"
)
_FOR_ALL = re.compile(r"(^|[:=,;\s'\"!])/(tmp|var/tmp|dev/shm)(/|$|[:\s'\"])")
_PACKAGES_FROM = re.compile(
    r"^(PIP_\w*INDEX\w*|PIP_FIND_LINKS|UV_\w*(INDEX|FIND_LINKS)\w*|GOPROXY|GONOSUMDB|npm_config_\w*registry|NPM_CONFIG_\w*REGISTRY|"
    r"YARN_\w*REGISTRY\w*|HOMEBREW_\w+(DOMAIN|REMOTE)|CARGO_REGISTR\w+|POETRY_REPOSITORIES_\w+|CONDA_CHANNELS?|RUSTUP_\w+|"
    r"PUPPETEER_DOWNLOAD\w*|PLAYWRIGHT_DOWNLOAD_HOST|NODEJS_ORG_MIRROR|NVM_\w*MIRROR|BUNDLE_MIRROR\w*|HF_ENDPOINT)$"
)
_ELSEWHERE = re.compile(
    r"\s*(\w+\+)?https?://(?!(localhost|127\.|\[::1\]|pypi\.org/|registry\.npmjs\.org|registry\.yarnpkg\.com|proxy\.golang\.org))"
)
_HIDES = re.compile(r"^(HISTFILE|HISTSIZE|HISTFILESIZE|HISTCONTROL|HISTIGNORE)$")


_INSTALLERS = frozenset(
    ["pip", "pipx", "npm", "pnpm", "yarn", "npx", "pnpx", "bunx", "bun", "uvx", "uv", "deno", "gem", "poetry", "cargo"]
)
_FROM_ELSEWHERE = re.compile(
    r"^([\w.-]+(\[[\w,]*\])?\s*@\s*)?(git\+|https?://|github:|gitlab:|bitbucket:|gist:|ssh://|git@|git://)"
)


def _option_value(word: str) -> str:
    """Of an option that is written with its value; else the word."""
    return word.partition("=")[2] if word.startswith("-") else word


def hostile(command: ShellCommand) -> list[Finding]:
    """What the words, the input and the assignments of a command say, whatever its program is."""
    found: list[Finding] = []
    texts = [*command.words[1:], *(redirect.target for redirect in command.redirects), command.stdin or ""]
    for text in texts:
        if text and (address := metadata_in(text)):
            found.append(Finding("high", f"{address} is where a cloud machine gets its credentials"))
        if _OPENS_DOOR.search(text):
            found.append(Finding("high", "opens a connection to another machine, as shells for strangers do"))
    if command.program not in ("echo", "printf", "grep", "rg", "git", "cat"):
        for word in command.words[1:]:
            if _UNSAFE.fullmatch(word):
                found.append(Finding("high", f"{command.program} {word} runs with its safety off"))
    if command.program in _INSTALLERS and any(_FROM_ELSEWHERE.match(_option_value(word)) for word in command.words[1:]):
        found.append(Finding("high", f"{command.program} downloads code from an address and runs it"))
    if _AUTONOMOUS in zip(command.words, command.words[1:], strict=False) or "--tier=autonomous" in command.words:
        found.append(Finding("high", f"{command.program} starts another agent that does not ask for permission"))
    if command.program in _SOCKETS and set(command.fed_by) & (SHELLS | {"python", "perl", "ruby", "php", "node"}):
        found.append(Finding("high", f"{command.program} opens a shell for another machine"))
    for assignment in [*command.assignments, *(word for word in command.words[1:] if _is_setting(command, word))]:
        name, _, value = assignment.partition("=")
        if (_TAKES_OVER.match(name) and value) or _OPTIONS_THAT_RUN.search(value):
            found.append(Finding("high", f"{name} makes other programs run what it names"))
        if _LOADS.match(name) and _FOR_ALL.search(value):
            found.append(Finding("high", f"{name} makes programs run or load what lies where others can write"))
        if _PACKAGES_FROM.match(name) and _ELSEWHERE.match(value):
            found.append(Finding("high", f"{name} makes packages, which run, come from another place"))
        if name == "DISPLAY" and re.match(r"[\w.-]+:", value) and not re.match(r"(localhost|unix|127\.)", value):
            found.append(Finding("high", "DISPLAY shows the program on another machine, which can type into it"))
        if name == "PATH" and re.match(r"^(\.|\./|:|/tmp\b|/var/tmp\b|/dev/shm\b)", value):
            found.append(Finding("high", "PATH makes a folder that others can write to come first"))
        if _HIDES.match(name):
            found.append(Finding("high", f"{name} hides what was run from the history"))
    return found


def _is_setting(command: ShellCommand, word: str) -> bool:
    if command.program == "unset":
        return True
    return command.program in ("export", "declare", "typeset", "readonly", "env", "set", "local") and "=" in word


def metadata_in(text: str) -> str:
    """The address of a service that hands out a cloud machine's credentials, however it is spelled; else nothing."""
    for spelling in dict.fromkeys([text, _as_resolved(text)]):
        if match := _METADATA_NAMES.search(spelling):
            return match.group(0).strip("/@= ")
        for match in _HOST.finditer(spelling):
            host = match.group(1)
            if _is_metadata(host) or _is_metadata(host.rpartition(":")[0]):
                return host
    return ""


def _as_resolved(text: str) -> str:
    """A text with the spellings undone that programs undo before they look a name up."""
    return unicodedata.normalize("NFKC", urllib.parse.unquote(text[:4096])).replace("\u3002", ".")


def _is_metadata(host: str) -> bool:
    host = host.strip("[]").rstrip(".").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        numbers = host.split(".")
        if not 1 <= len(numbers) <= 4 or not all(_NUMBER.fullmatch(number) for number in numbers):
            return False
        values = [_value(number) for number in numbers]
        if any(value > 255 for value in values[:-1]) or values[-1] >= 256 ** (5 - len(values)):
            return False
        whole = values[-1] + sum(value << (8 * (3 - at)) for at, value in enumerate(values[:-1]))
        address = ipaddress.ip_address(whole)
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and any(address in network for network in _WRAPS_IPV4):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address in _METADATA or (inner is not None and inner in _LINK_LOCAL)
    return address in _METADATA or address in _LINK_LOCAL


def _value(number: str) -> int:
    if number.lower().startswith("0x"):
        return int(number, 16)
    return int(number, 8) if number.startswith("0") and len(number) > 1 else int(number)


def opens_shell(code: str) -> bool:
    """Whether a program in another language connects somewhere and runs a shell."""
    return bool(_OPENS_DOOR.search(code)) or bool(_SOCKET_CODE.search(code) and _SHELL_CODE.search(code))

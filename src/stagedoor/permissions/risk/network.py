"""Programs that talk to other machines, to containers and to clouds."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from ..paths import Ground, locate
from ..shell.script import ShellCommand
from ..shell.words import expand_braces
from .effects import Finding, reading, writing
from .unpacking import copied

Look = Callable[[ShellCommand, Ground], list[Finding]]

_UPLOADS = ("-d", "--data", "--data-binary", "--data-raw", "--data-urlencode", "-F", "--form", "-T", "--upload-file",
            "--post-file", "--body-file", "-K", "--config", "--json", "--variable", "-H", "--header")  # fmt: skip
_OUTPUTS = ("-o", "--output", "-O", "--output-document", "-P", "--directory-prefix", "--output-dir", "-D",
            "--dump-header", "-c", "--cookie-jar", "--trace", "--trace-ascii")  # fmt: skip
_LEAKS = frozenset({"env", "printenv", "history", "set", "export", "declare", "typeset", "compgen"})
_RUNS_WITH = frozenset(
    ["--use-askpass", "--on-download-complete", "--on-download-start", "--on-download-error", "--on-download-stop",
     "--on-bt-download-complete", "--on-download-pause"]
)  # fmt: skip


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
        if flag in _RUNS_WITH or (name == "wget" and flag in ("-e", "--execute", "--config")):
            found.append(Finding("high", f"{name} {flag} makes it run or do what is named there"))
        if name == "curl" and flag in ("-K", "--config"):
            found.append(Finding("high", f"{name} {flag} takes its options from a file, which may say anything"))
    for word in words[1:]:
        if word.startswith("file://"):
            found += reading(re.sub(r"^file://[^/]+", "", word) or word, command.cwds, ground)
    if command.stdin is not None:
        found += [
            f for word in command.stdin.split()[:50] for f in reading(word, command.cwds, ground) if f.risk == "high"
        ]
    if _LEAKS & set(command.fed_by):
        found.append(Finding("high", f"{name} gets the environment, which often contains credentials"))
    return found


def _uploaded(flag: str, value: str) -> list[str]:
    if flag in ("-T", "--upload-file", "--post-file", "--body-file", "-K", "--config"):
        return expand_braces(value)
    return [path.partition(";")[0] for path in re.findall(r"(?:^|=)[@<]([^\s&]+)", value) if path != "-"]


def _copy(command: ShellCommand, ground: Ground) -> list[Finding]:
    name = command.program
    found = [Finding("medium", f"{name} copies between machines or folders"), *_ssh_options(command, ground)]
    names = [word for word in command.words[1:] if not word.startswith("-")]
    local = [word for word in names if not re.match(r"^[\w.@-]+:", word)]
    for path in local:
        found += [f for f in reading(path, command.cwds, ground) if f.risk == "high"]
        spot = locate(path, command.cwds, ground)
        if spot.broad and spot.place != "workspace" and names[-1] not in local:
            found.append(Finding("high", f"{name} sends all of {path} to another machine"))
    if command.program == "rsync" and "--daemon" in command.words:
        found.append(Finding("high", "rsync --daemon gives files to whoever connects"))
    if name == "rclone" and command.words[1:2] == ("config",):
        found.append(Finding("high", "rclone config shows or changes credentials"))
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
        re.fullmatch(r"-[a-zA-Z]*[ec]|--(sh-|lua-)?exec(=.*)?|-[a-zA-Z]*e.*sh|(sh-c|exec|cmd):.*", word)
        for word in words
        if name != "telnet"
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
        if command.program in ("ssh", "autossh") and re.match(r"^-[a-zA-Z]*A$", flag):
            found.append(Finding("high", f"{command.program} -A lends your keys to the other machine"))
        where = value if flag in ("-D", "-L") else flag[2:] if flag[:2] in ("-D", "-L") else ""
        if command.program in ("ssh", "autossh") and (re.match(r"^(0\.0\.0\.0|\*|\[?::\]?)?:", where) or flag == "-g"):
            found.append(Finding("high", f"{command.program} {flag} lets others in from outside"))
        if command.program == "mosh" and flag.startswith(("--ssh", "--server", "--client")):
            found.append(Finding("high", f"mosh {flag} runs the program that is named there"))
        if re.match(r"^-R", flag) and command.program in ("ssh", "autossh"):
            found.append(Finding("high", f"{command.program} -R opens a way in from another machine"))
        if command.program in ("ssh", "scp", "sftp") and re.match(r"^-F", flag):
            found.append(Finding("high", f"{command.program} -F takes its settings, with their programs, from a file"))
        if command.program == "ssh" and re.match(r"^-I", flag):
            found.append(Finding("high", "ssh -I loads the library that is named there"))
        if command.program in ("scp", "sftp") and re.match(r"^-[SD]", flag):
            found.append(Finding("high", f"{command.program} {flag} runs the program that is named there"))
        short = re.fullmatch(r"-[a-zA-Z]*e", flag) is not None
        shell = value if short or flag in ("--rsh", "--rsync-path") else flag.partition("=")[2]
        named = short or flag in ("--rsh", "--rsync-path") or flag.startswith(("--rsh=", "--rsync-path=", "-e="))
        if (
            command.program == "rsync"
            and named
            and not re.fullmatch(r"ssh( -[p46C]\s*\d*| -i [\w./~-]+)*|sudo rsync", shell)
        ):
            found.append(Finding("high", f"rsync {flag} runs the program that is named there"))
    return found


_WITH_CONTEXTS = ("docker", "docker-compose", "podman", "podman-compose")
"""Whose contexts are machines. Those of ``kubectl`` are clusters, on which it works anyway."""
_BEFORE_THE_COMMAND = ("--config", "--host", "-H", "--log-level", "-l", "--tlscacert", "--tlscert", "--tlskey")


def _contexts(words: Sequence[str]) -> Iterator[str]:
    """What ``--context`` names anywhere, and ``-c`` before the command, after which it means something else."""
    before, value_of = True, ""
    for word, following in itertools.pairwise([*words, ""]):
        option, given, attached = word.partition("=")
        if option == "--context":
            yield attached if given else following
        elif before and (short := re.match(r"-[Dv]*c=?(.*)", word, re.DOTALL)):
            yield short[1] or following
        before = before and (word.startswith("-") or value_of in (*_BEFORE_THE_COMMAND, "--context", "-c"))
        value_of = word


def _container(command: ShellCommand, ground: Ground) -> list[Finding]:
    name, words = command.program, command.words[1:]
    line = " ".join([*words, command.stdin or ""])
    if re.search(
        r"--(allow-)?privileged|security\.(privileged|insecure|nesting)|raw\.(lxc|qemu)|--grant-all|hostpid|hostnetwork|"
        r"hostpath|hostipc|privileged\W{1,3}true|--rootfs|--filesystem=host|--profile=(sysadmin|privileged)"
        r"|\bdebug node/|\bcontext (create|update|import)\b|docker host=|\bswarm init\b"
        r"|(^|\s)--(url|connection|remote)\b|cluster-admin|volumes\W+[\[-]+\s*\W?/|\bmachine ssh\b|"
        r"--(pid|userns|ipc|uts|net|network|cgroupns)[= ]host|--cap-add|--device\b|--security-opt"
        r"|--cgroup-parent|--gpus-all|--volumes-from|docker\.sock|podman\.sock|containerd\.sock|(^|\s)(-H|--host)[= ]",
        line, re.I,
    ):  # fmt: skip
        return [Finding("high", f"{name} turns off the isolation of a container")]
    if name in _WITH_CONTEXTS and (elsewhere := [place for place in _contexts(words) if place != "default"]):
        return [Finding("high", f"{name} --context {elsewhere[0]} works on another machine")]
    mounts = [word for word in words if re.match(r"^(~|/|\.)[^:]*:", word)]
    mounts += [word.partition("=")[2] for word in words if word.startswith(("--volume=", "-v="))]
    mounts += [match.group(1) for word in words if (match := re.match(r"^-[a-zA-Z]*v([~/.].*)", word))]
    mounts += re.findall(r"(?:source|src|device|dest)=([^,\s\"]+)", line)
    for flag, value in itertools.pairwise([*words, ""]):
        option, given, attached = flag.partition("=")
        value = attached if given else value
        if option == "--build-context" or option in _MOUNT_OPTIONS.get(name, ()):
            mounts += [value.rpartition("=")[2], value]
        elif option in ("-f", "--file", "-c", "--compose-file", "--config", "--env-file", "--project-directory"):
            spot = locate(value, command.cwds, ground)
            if spot.place not in ("workspace", "harmless", "unknown"):
                return [Finding("high", f"{name} does what {value} says, a file outside the workspace")]
        elif option in ("-o", "--output", "--iidfile", "--metadata-file", "--cidfile") and "=" not in value:
            mounts.append(value)
    if name in ("minikube", "multipass") and words[:1] == ("mount",):
        mounts += words[1:2]
    for mount in mounts:
        spot = locate(mount.partition(":")[0], command.cwds, ground)
        if (
            spot.place == "protected"
            or spot.place in ("secret", "system", "outside", "device")
            or (spot.broad and spot.place != "workspace")
        ):
            return [Finding("high", f"{name} gives a container access to {mount.partition(':')[0]}")]
    if re.search(
        r"\b(prune|rmi)\b|\bvolume rm\b|(^|\s)rm\b.*(-f|--force|-v)|\bdown\b.*(-v|--volumes)|\bcompose\b.*\brm\b", line
    ):
        return [Finding("high", f"{name} deletes containers, images or volumes")]
    return [Finding("medium", f"{name} works with containers")]


_MOUNT_OPTIONS = {
    **dict.fromkeys(("singularity", "apptainer"), ("-B", "--bind", "--mount", "--home", "-H")),
    **dict.fromkeys(("colima", "limactl", "devcontainer"), ("--mount", "-V")),
    "act": ("--container-options", "--bind"), "minikube": ("--mount-string",),
}  # fmt: skip
_CLOUD = re.compile(
    r"\b(delete|destroy|terminate\S*|rb|purge|nuke|drain|uninstall|deprovision|apps:destroy|pg:reset|delete-\S+|remove-\S+)\b"
)


_GRANTS = re.compile(
    r"\b(attach|put|set|add|update|create)-[\w-]*(policy|acl|binding|login-profile|trust|permission)\b|add-iam-policy-binding"
    r"|set-iam-policy|role assignment create|authorize-security-group|--acl[= ]public|allusers|allauthenticatedusers"
    r"|put-public-access-block|add-user-to-group|roles/owner|administratoraccess|create-key-pair|import-key-pair"
    r"|\bupdate-function-(code|configuration)\b|run-command invoke|ssm (send-command|start-session)|ecs execute-command"
    r"|add-metadata\b.*ssh-keys|--visibility[= ]public|\brepo create\b.*--public"
    r"|(^|[\s/])(user|repos/\S+)/(gpg_)?keys\b"
    r"|/(hooks|collaborators|invitations)\b.*(-X|--method|-f|-F)"
    r"|(-X|--method)\b.*/(hooks|collaborators|invitations|keys)\b"
    r"|clusterrolebinding|\b(create|edit|patch) rolebinding|gist create\b.*(\.env|id_rsa|\.pem)",
    re.IGNORECASE,
)
_TAKES_FROM_ADDRESS = re.compile(r"(^| )(apply|create|replace|install|upgrade)\b.*\s\S*https?://")
_SERVES_ALL = re.compile(
    r"\b(port-forward|proxy)\b.*--address[= ](0\.0\.0\.0|::|\*)|--accept-hosts|--bind-all|--disable-filter"
)


def _cloud(command: ShellCommand, ground: Ground) -> list[Finding]:
    name, line = command.program, " ".join(command.words[1:])
    if _CLOUD.search(line) or re.search(r"\bs3\b.*\b(rm|sync)\b.*(--recursive|--delete)", line):
        return [Finding("high", f"{name} deletes remote resources")]
    if re.search(
        r"\bauth (application-default )?(token|print-access-token|print-identity-token)\b|get-secret-value"
        r"|get secrets?\b|config view --raw"
        r"|--show-token|export-credentials|get-session-token|assume-role|--with-decryption|get-login-password|create-access-key"
        r"|get-access-token|secrets? versions access|keyvault secret|\bkeys create\b|create token"
        r"|get-federation-token|env pull"
        r"|userdata|\bquery\b|config (show|dump)|--query user-?data|ssh-key add"
        r"|deploy-key add"
        r"|auth refresh|--show-secrets|\bstate pull\b|\boutput\b.*-json|create-for-rbac|create-login-profile",
        line,
        re.IGNORECASE,
    ):
        return [Finding("high", f"{name} shows or makes credentials")]
    if _GRANTS.search(line):
        return [Finding("high", f"{name} changes who may do or see something, or runs a program elsewhere")]
    if name == "heroku" and line.startswith("config"):
        return [Finding("high", "heroku config shows or changes credentials")]
    if re.search(
        r"^(alias set|krew install|config set (editor|pager|browser|git_protocol)|(plugin|extension)s? (install|add))",
        line,
    ):
        return [Finding("high", f"{name} installs what runs later")]
    if name in ("kubectl", "oc", "helm") and any(finding.risk == "high" for finding in _container(command, ground)):
        return [Finding("high", f"{name} starts something that is not isolated from its machine")]
    for word in command.words[1:]:
        for part in (word.removeprefix("file://").removeprefix("fileb://"), word.partition("=")[2]):
            spot = locate(part, command.cwds, ground) if part and ("/" in part or part.startswith((".", "~"))) else None
            if spot is not None and (spot.place == "secret" or (spot.broad and spot.place != "workspace")):
                return [Finding("high", f"{name} gets {part}, with what is secret in it")]
    if name in ("kubectl", "oc", "helm") and _TAKES_FROM_ADDRESS.search(line):
        return [Finding("high", f"{name} starts what it downloads from an address")]
    if _SERVES_ALL.search(line):
        return [Finding("high", f"{name} lets others in from outside")]
    if re.search(r"\bapply\b.*-auto-approve", line):
        return [Finding("high", f"{name} changes remote resources without asking")]
    return [Finding("medium", f"{name} uses a remote service")]


_PUBLISH = {
    "npm": r"publish|unpublish|deprecate|owner|token|adduser|login|config (get \S*_auth\w*|ls|list)",
    "yarn": r"publish|npm publish", "pnpm": r"publish",
    "cargo": r"publish|yank|login|owner", "gem": r"push|yank|owner", "twine": r"upload", "poetry": r"publish",
    "uv": r"publish", "hatch": r"publish", "flit": r"publish",
}  # fmt: skip


_PACKAGE_RUNS = re.compile(
    r"--script-shell\b|--config\b|--toolexec\b|-toolexec\b|-vettool\b|(^|\s)-exec\b|--node-options\b"
)
_PACKAGE_SETS = re.compile(
    r"(config set|c set|set) \S*(script-shell|shell|prefix|node-options|git|registry|cafile|index-url|proxy|editor"
    r"|viewer|channels|yarnPath|pluginPath|"
    r"ignore-scripts)|set-script\b|pkg set scripts"
)
_FOREIGN = re.compile(
    r"(-i|--index-url|--extra-index-url|--index|--default-index|--find-links|-f|--registry|--git"
    r"|--source|-c|--channel|--add|-a|channels|sources|-w GO\w+|repo\S* \w+)[= ]+(https?|git|ssh|ftp)"
    r"\S*://(?!(pypi\.org|registry\.npmjs\.org|registry\.yarnpkg\.com|github\.com)/)", re.IGNORECASE
)  # fmt: skip
_ROOTS = (
    "--prefix",
    "--root",
    "--target",
    "-t",
    "--destdir",
    "--install-dir",
    "--target-dir",
    "--bin-dir",
    "--install-root",
)


def _packages(command: ShellCommand, ground: Ground) -> list[Finding]:
    found = _published(command)
    name, whole = command.program, " ".join(command.words[1:])
    if _PACKAGE_RUNS.search(whole) or _PACKAGE_SETS.search(
        " ".join(w for w in command.words[1:] if not w.startswith("-"))
    ):
        found.append(Finding("high", f"{name} is told to run something else, or to do so later"))
    if _FOREIGN.search(whole):
        found.append(Finding("high", f"{name} takes packages, which run, from another place"))
    for flag, value in itertools.pairwise([*command.words, ""]):
        option, given, attached = flag.partition("=")
        if option in _ROOTS:
            found += [f for f in writing(attached if given else value, command.cwds, ground) if f.risk == "high"]
    return found


def _published(command: ShellCommand) -> list[Finding]:
    name, line = command.program, " ".join(w for w in command.words[1:] if not w.startswith("-"))
    if name in _PUBLISH and re.match(rf"({_PUBLISH[name]})\b", line):
        return [Finding("high", f"{name} {line.split(' ')[0]} changes what others install")]
    return [Finding("medium", f"{name} may download and run code")]


TABLE: dict[str, Look] = {
    **dict.fromkeys(("curl", "wget", "http", "https", "xh", "aria2c", "fetch", "lynx", "w3m", "ftp"), _fetch),
    **dict.fromkeys(("scp", "rsync", "sftp", "rclone"), _copy),
    **dict.fromkeys(("nc", "ncat", "netcat", "socat", "telnet", "websocat"), _socket),
    **dict.fromkeys(("ssh", "mosh", "autossh", "sshpass"), _ssh),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "buildah", "ctr", "crictl", "lxc", "incus",
                     "finch",
                     "podman-compose", "singularity", "apptainer", "minikube", "kind", "k3d", "colima", "limactl",
                     "multipass", "devcontainer", "act", "earthly", "nomad", "flatpak", "vagrant"), _container),
    **dict.fromkeys(("aws", "gcloud", "gsutil", "az", "kubectl", "oc", "terraform", "tofu", "pulumi", "helm", "heroku",
                     "flyctl", "fly", "vercel", "netlify", "doctl", "gh", "glab", "s3cmd", "mc", "cloud-init",
                     "azcopy", "wrangler", "railway",
                     "s5cmd", "b2", "oci", "hcloud", "linode-cli", "ibmcloud"), _cloud),
    **dict.fromkeys(_PUBLISH, _packages),
    **dict.fromkeys(("pip", "go", "pipx", "conda", "mamba", "micromamba", "composer",
                     "luarocks", "cpan", "cpanm"), _packages),
}  # fmt: skip

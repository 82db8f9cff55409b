"""Programs that delete, overwrite, stop or take over."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from ..paths import Ground, locate
from ..shell.script import ShellCommand
from .effects import Finding, changing_tree, deleting, protected_finding, reading, writing
from .unpacking import UNPACKERS, copied, patched, unpacked

Look = Callable[[ShellCommand, Ground], list[Finding]]

ALWAYS: dict[str, str] = {
    **dict.fromkeys(("sudo", "doas", "su", "pkexec", "runuser", "gosu", "su-exec"), "runs as another user"),
    **dict.fromkeys(("mkfs", "mke2fs", "mkswap", "wipefs", "newfs", "blkdiscard", "hdparm"), "erases a disk"),
    **dict.fromkeys(("fdisk", "sfdisk", "parted", "sgdisk", "gdisk", "diskutil", "cryptsetup"), "partitions a disk"),
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff", "telinit", "init"), "stops or restarts the machine"),
    **dict.fromkeys(("useradd", "userdel", "usermod", "adduser", "deluser", "groupadd", "groupdel", "passwd",
                     "chpasswd", "visudo", "vipw", "chsh", "gpasswd", "dscl"), "changes the users of the machine"),
    **dict.fromkeys(("insmod", "modprobe", "rmmod", "kexec", "sysctl"), "changes the kernel"),
    **dict.fromkeys(("mount", "umount", "losetup", "swapoff", "swapon"), "mounts or unmounts disks"),
    **dict.fromkeys(("iptables", "ip6tables", "nft", "ufw", "firewall-cmd", "pfctl"), "changes the firewall"),
    **dict.fromkeys(("chroot", "nsenter", "unshare", "setcap", "capsh", "systemd-nspawn", "machinectl", "setpriv",
                     "bwrap",
                     "firejail", "flatpak-spawn", "distrobox", "toolbox", "runc", "crun", "kata-runtime", "lxc-attach",
                     "lxc-create", "lxc-start", "lxc-execute", "lxc-usernsexec", "youki", "start-stop-daemon",
                     "schroot"),
                    "changes the isolation or rights of a program"),
    **dict.fromkeys(("ngrok", "cloudflared", "bore", "localtunnel", "lt", "chisel", "frpc", "frps", "gost",
                     "ligolo-agent",
                     "ligolo-proxy", "rathole", "zrok", "pinggy", "sshd", "dropbear", "ttyd", "gotty", "shellinabox",
                     "shellinaboxd", "wetty", "tmate", "upterm", "sshx", "x11vnc", "Xvnc", "vncserver", "inetd",
                     "xinetd",
                     "websocketd", "dnscat2", "dnscat", "iodine", "icmpsh", "revsh", "pwncat", "pwncat-cs",
                     "evil-winrm",
                     "msfvenom", "msfconsole", "teamviewer", "anydesk", "rustdesk", "code-server", "gs-netcat",
                     "telnetd", "tcpsvd", "udpsvd", "stunnel", "stunnel4", "ztcp", "zsocket",
                     "devtunnel", "inlets", "pagekite", "tunnelto", "loclx", "pktriot", "wstunnel",
                     "boringproxy", "jprq",
                     "playit", "xhost", "tailscaled", "zerotier-one", "netbird", "x0vncserver", "wayvnc", "krfb"),
                    "lets others in from outside"),
    **dict.fromkeys(("debugfs", "guestmount", "guestfish", "virt-cat", "virt-copy-out", "testdisk", "photorec"),
                    "reads or writes disks past the rights of files"),
    **dict.fromkeys(("impacket-psexec", "impacket-wmiexec", "impacket-secretsdump", "hydra", "hashcat",
                     "john"), "is made for attacks"),
    **dict.fromkeys(("ec2-metadata", "ec2metadata", "oci-metadata"), "reads the credentials of a cloud machine"),
    **dict.fromkeys(("lvremove", "vgremove", "pvremove", "zpool", "zfs", "mdadm", "badblocks"), "erases a disk"),
    **dict.fromkeys(("setenforce", "auditctl", "apparmor_parser", "aa-disable", "aa-complain", "spctl", "csrutil"),
                    "turns off a protection of the machine"),
    **dict.fromkeys(("ssh-copy-id", "newgrp", "runas", "loginctl", "chkconfig", "schtasks", "systemd-run"),
                    "gives access or installs something that runs later"),
    **dict.fromkeys(("at", "batch"), "installs something that runs later"),
    **dict.fromkeys(("shred", "srm", "wipe"), "deletes files permanently"),
    **dict.fromkeys(("dropdb", "dropuser"), "deletes a database"),
    **dict.fromkeys(("killall5",), "kills every process"),
    **dict.fromkeys(("gcore", "ptrace"), "reads the memory of another program"),
    **dict.fromkeys(("mimikatz", "keychain-dump", "secret-tool", "lpass", "gopass",
                     "kwallet-query"), "reads stored credentials"),
    **dict.fromkeys(("logrotate", "update-rc.d", "update-alternatives", "ldconfig"), "changes the system"),
}  # fmt: skip


LATER: dict[str, tuple[re.Pattern[str], str]] = {
    name: (re.compile(pattern), reason)
    for names, pattern, reason in (
        (
            "husky lefthook pre-commit overcommit simple-git-hooks",
            r"install|init|add|autoupdate|$",
            "installs hooks of git",
        ),
        (
            "direnv mise asdf",
            r"allow|permit|trust|edit|plugins? (add|install)|use -g|settings set",
            "lets a folder run programs",
        ),
        (
            "code cursor codium windsurf code-insiders",
            r"(.* )?(--install-extension|tunnel|serve-web)\b",
            "installs what runs later",
        ),
        ("fossil", r"settings? .*(command|editor|hook)", "runs what is named there"),
        ("defaults", r"write .*(hook|login|launch|autolaunch)", "installs what runs later"),
        (
            "gsettings dconf",
            r"(set|write|load)\b.*(exec|command|autostart|default-applications|custom-keybinding|settings-daemon)",
            "installs what runs later",
        ),
        ("xdg-mime xdg-settings desktop-file-install", r"default|set|.*autostart", "installs what runs later"),
        ("tailscale", r"funnel|serve|up\b|set\b|login", "lets others in from outside"),
        ("jupyter", r".*(token=|--ip[= ]0\.0\.0\.0|password=)", "lets others in from outside"),
        ("make gmake", r"(.* )?(\.?SHELL(FLAGS)?|MAKEFILES)[:+?]?=", "runs its commands by another program"),
        ("ssh-keygen", r"(.* )?-[Dw]( |\S)", "loads the library that is named there"),
        ("enable", r"(.* )?-\w*f", "loads the library that is named there"),
        ("hash", r"(.* )?-\w*p", "puts a program in the place of another"),
        ("ssh-add", r"(.* )?-[se] ", "loads the library that is named there"),
        ("ssh-agent", r"(.* )?-P", "loads the library that is named there"),
        (
            "gdb lldb strace ltrace perf reptyr",
            r"(.* )?(-p|--pid|--attach\S*|-a)[ =]?\d+",
            "reads the memory of another program",
        ),
        ("ps", r"-?\w*(?<!-)e\w*( |$)(?<!-e )(?<!-ef )|.*\benviron", "shows the environment of other programs"),
        ("mysqladmin", r"(.* )?(drop|shutdown|password)\b", "changes a database for good"),
        ("just task", r"(.* )?--shell", "runs its commands by another program"),
        ("launchctl", r"setenv", "changes what later programs do"),
        ("nomad", r"alloc exec", "runs a program elsewhere"),
        ("sops age rage", r"(.* )?(-d|--decrypt|decrypt|exec-\w+)( |$)", "shows credentials"),
        ("ansible-vault", r"view|decrypt|edit", "shows credentials"),
        ("firebase", r"login:ci", "shows or makes credentials"),
        (
            "chezmoi yadm rcup stow dotbot",
            r"(.* )?(apply|init|update|pull|clone|-t |--target|up$|$)",
            "writes the files of the home folder, from which shells and programs start",
        ),
        ("xterm urxvt rxvt", r"(.* )?-display( |=)\S*\w:", "opens a shell for another machine"),
        (
            "apt apt-get aptitude dnf yum zypper apk pacman",
            r"(.* )?(install|add|-i|-U|-S\w*|localinstall)( .*)? (\S*://|\.?\.?/|~)\S+"
            r"|.*(--allow-(unauthenticated|untrusted|insecure-repositories)|--nogpgcheck|--force-yes|trusted=yes)"
            r"|.*((?i:::\S*(invoke|hook|proxy-?auto)|pluginpath|hookdir)|Dir::Bin|DPkg::Path)",
            "installs what no repository vouches for, or runs what its settings name",
        ),
        (
            "dpkg rpm",
            r"(.* )?(-i|-U|-F|--install|--upgrade|--unpack|-[a-zA-Z]*[iUF][a-zA-Z]*)( |$)(?!.*(-q|--query|-s ))",
            "installs a package that no repository vouches for",
        ),
        ("add-apt-repository apt-add-repository apt-key", r".", "takes packages, which run, from another place"),
        ("snap", r"(.* )?--(dangerous|devmode|classic|jailmode)", "installs a package that is not confined"),
        (
            "flatpak",
            r"(.* )?(remote-add|install\b.*(://|\.flatpakref|--bundle|--from)|override\b)",
            "takes packages, which run, from another place",
        ),
        (
            "brew",
            r"(.* )?(tap \S+ \S*://|(install|reinstall|upgrade|cask)\b.*\S*://|(install|reinstall) (\S+ )*\.?/)",
            "takes packages, which run, from another place",
        ),
        (
            "nix nix-env nix-shell nix-build guix nix-channel",
            r"(.* )?((-f|--file|--url|--channel|--url=\S*)[ =]?\S*://\S+|\S*(github:|gitlab:|git\+|tarball\+|https?:)\S+"
            r"|(run|shell|develop|build|profile install|--add) \S*:\S+)",
            "takes packages, which run, from another place",
        ),
        (
            "wsl",
            r"(.* )?(-u|--user|--import|--mount|--system|--exec|-e|--)( |$)",
            "runs as another user or in another system",
        ),
    )
    for name in names.split()
}
"""Programs that are dangerous with some of their words."""

_NAMING: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for names, pattern in (
        ("hg sl", r"--ssh?[= ]|-[UufnMpGvqy]*e|--remotec\w*[= ]|--config(-?file)?[= ](?!ui\.username)"),
        ("svn svnadmin svnsync", r"--(config-(option|dir)|diff3?-cmd|merge-cmd|editor-cmd)[= ]"),
        (
            "gcc g++ cc c++ clang clang++ gfortran ld gold lld",
            r"-wrapper\b|-fplugin[=-]|-fpass-plugin=|(-Wl,(\S*,)?)?-{1,2}plugin\b|-load\b|-B ?/tmp"
            r"|-{1,2}specs[= ](?!(nano|nosys|rdimon|picolibc)\.specs( |$))",
        ),
        ("bzr brz", r"-O"),
        ("fossil", r"-{1,2}(ssh-command|command)[= ]"),
        ("jj", r"--(config(-file|-toml)?|tool)[= ]"),
    )
    for name in names.split()
}
"""Options, each with the word after it, that name a program or a library."""
_PROGRAM_SETTING = re.compile(
    r"\\|edit|pager|tool|alias|program|command|exec|fix|sign|diff|merge|fsmonitor|hook|backend"
)


def names_program(name: str, words: Sequence[str]) -> bool:
    """Whether an option among ``words`` names what ``name`` runs or loads. A message that speaks of one is none."""
    pattern = _NAMING.get(name)
    if pattern is None:
        return False
    for word, following in itertools.pairwise([*words, ""]):
        option = word.partition("=")[0]
        if not (option.startswith("--") and re.search(r"\s", option)) and pattern.match(f"{word} {following}"):
            return True
    return name == "jj" and _sets_program(words)


def _sets_program(words: Sequence[str]) -> bool:
    """Whether ``jj config set`` has a setting, or a table of them, from which jj takes what it runs."""
    at = next((at for at, word in enumerate(words) if word == "config"), len(words))
    given = [word for word in words[at + 1 :] if not word.startswith("-")]
    if given[:1] not in (["set"], ["s"]):
        return False
    tables = [word for word in given[2:] if word.lstrip().startswith("{")]
    return any(_PROGRAM_SETTING.search(text) for text in (*given[1:2], *tables))


def options_and_names(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words that begin with a dash, and the others; after ``--`` all are names."""
    options: list[str] = []
    names: list[str] = []
    ended = False
    for word in words[1:]:
        if word == "--" and not ended:
            ended = True
        elif word.startswith("-") and word != "-" and not ended:
            options.append(word)
        else:
            names.append(word)
    return options, names


def _has(options: Sequence[str], letters: str, *long: str) -> bool:
    short = re.compile(rf"-[a-zA-Z]*[{letters}][a-zA-Z]*")
    return any(short.fullmatch(option) or option in long for option in options)


def _rm(command: ShellCommand, ground: Ground) -> list[Finding]:
    options, names = options_and_names(command.words)
    recursive = _has(options, "rR", "--recursive") or command.program in ("rimraf", "trash", "del-cli")
    verb = f"{command.program}{' -r' if recursive and command.program == 'rm' else ''} deletes"
    if "--no-preserve-root" in options:
        return [Finding("high", "rm --no-preserve-root is meant to delete everything")]
    found = [f for path in names for f in deleting(path, command.cwds, ground, recursive=recursive, verb=verb)]
    return found or [Finding("medium", f"{command.program} deletes files")]


def _dd(command: ShellCommand, ground: Ground) -> list[Finding]:
    found = [Finding("medium", "dd copies raw bytes")]
    for word in command.words[1:]:
        key, _, value = word.partition("=")
        if key == "of":
            found += writing(value, command.cwds, ground, verb="dd overwrites")
        elif key == "if":
            found += reading(value, command.cwds, ground)
    return found


def _mode(command: ShellCommand, ground: Ground) -> list[Finding]:
    options, names = options_and_names(command.words)
    recursive = _has(options, "R", "--recursive")
    name = command.program
    no_mode = name == "chattr" or any(option.startswith("--reference") for option in options)
    paths = names if no_mode else names[1:]
    look = changing_tree if recursive else writing
    found = [f for path in paths for f in look(path, command.cwds, ground, verb=f"{name} changes")]
    if name == "chmod" and names and re.search(r"[ugoa]*\+[rwx]*s|^[2467]\d{3}$", names[0]):
        found.append(Finding("high", "chmod makes a program run with its owner's rights"))
    return found or [Finding("medium", f"{name} changes the permissions or the owner of a file")]


def _move(command: ShellCommand, ground: Ground) -> list[Finding]:
    options, names = options_and_names(command.words)
    into = [word.partition("=")[2] for word in options if word.startswith("--target-directory=")]
    into += [
        after
        for flag, after in zip(command.words, command.words[1:], strict=False)
        if flag in ("-t", "--target-directory")
    ]
    sources, targets = ([n for n in names if n not in into], into) if into else (names[:-1], names[-1:])
    if command.program == "ln" and len(names) == 1 and not into:
        sources, targets = names, ["."]
    found = [f for path in targets for f in writing(path, command.cwds, ground)]
    found += copied(command, ground, sources, targets)
    links = command.program == "ln" or _has(options, "ls", "--link", "--symbolic-link")
    for path in sources:
        if links and (spot := locate(path, command.cwds, ground)).place == "protected":
            found.append(protected_finding(path, spot, "makes another name for"))
        if command.program == "mv":
            found += deleting(path, command.cwds, ground, recursive=True, verb="mv moves")
        if command.program != "ln":
            found += [f for f in reading(path, command.cwds, ground) if command.program != "mv" or f.risk == "high"]
        elif any(f.risk == "high" for f in writing(path, command.cwds, ground)):
            found.append(Finding("medium", f"links to {path}, outside the workspace"))
    return found or [Finding("medium", f"{command.program} changes files")]


def _write_all(command: ShellCommand, ground: Ground) -> list[Finding]:
    _, names = options_and_names(command.words)
    if command.program == "tee" and not names:
        return []
    found = [f for path in names for f in writing(path, command.cwds, ground)]
    return found or [Finding("medium", f"{command.program} writes files")]


def _kill(command: ShellCommand, ground: Ground) -> list[Finding]:
    words = command.words[1:]
    signal = words[:1] if words and re.match(r"^-([A-Z]+|\d+|s|n)$", words[0]) else ()
    pids = words[2:] if signal and signal[0] in ("-s", "-n") else words[len(signal) :]
    if command.program == "kill" and ({"-1", "1"} & set(pids) or (words[:1] == ("-1",) and len(words) == 1)):
        return [Finding("high", "kill stops every process it can reach")]
    if command.program == "pkill" and {"-u", "-U", "."} & set(words):
        return [Finding("high", "pkill stops every process of a user")]
    if "-l" in words or "-0" in words:
        return []
    return [Finding("medium", f"{command.program} stops processes")]


def _service(command: ShellCommand, ground: Ground) -> list[Finding]:
    verbs = [word for word in command.words[1:] if not word.startswith("-")]
    if not verbs or {"status", "list", "show", "cat", "is-active", "is-enabled", "list-units", "print"} & set(verbs):
        return [Finding("medium", f"{command.program} queries the system's services")]
    return [Finding("high", f"{command.program} changes the system's services")]


def _crontab(command: ShellCommand, ground: Ground) -> list[Finding]:
    if command.words[1:] == ("-l",):
        return [Finding("medium", "crontab -l shows scheduled commands")]
    return [Finding("high", "crontab installs something that runs later")]


def _logs(command: ShellCommand, ground: Ground) -> list[Finding]:
    if any(
        re.match(r"^-[a-zA-Z]*[cwCdarn]|^--(vacuum|rotate|clear|flush|relinquish)", word) for word in command.words[1:]
    ):
        return [Finding("high", f"{command.program} deletes or changes what was recorded")]
    return [Finding("medium", f"{command.program} shows what was recorded")]


DATABASES = frozenset({"psql", "mysql", "mariadb", "sqlite3", "mongo", "mongosh", "redis-cli", "cqlsh"})
_SQL = re.compile(
    r"\b(drop\s+(table|database|schema|index|view|user|role|keyspace|collection)|truncate\b|flushall|flushdb|dropdatabase"
    r"|alter\s+(user|role)|delete\s+from\s+[\w.\"`]+\s*(;|$|\\|\"|'))|\.drop\(|copy\s.+\bprogram\b|\\!|\.shell\b|\.system\b"
    r"|\binto\s+(out|dump)file\b|\bconfig\s+set\s+(dir|dbfilename)\b|\bsystem\s+\w",
    re.IGNORECASE,
)


def _database(command: ShellCommand, ground: Ground) -> list[Finding]:
    text = " ".join([*command.words[1:], command.stdin or ""])
    if match := _SQL.search(text):
        return [Finding("high", f"{command.program} runs {match.group(0).strip()}")]
    found = [Finding("medium", f"{command.program} uses a database")]
    return found + [
        f
        for redirect in command.redirects
        if not redirect.writes
        for f in reading(redirect.target, command.cwds, ground)
    ]


_CREDENTIALS = {
    "security": re.compile(r"find-(generic|internet)-password|dump-keychain|export"),
    "gpg": re.compile(r"--export-secret|--delete-secret|.*\.password-store"),
    "pass": re.compile(r"^(?!ls$)."),
    "op": re.compile(r"read|item"),
    "vault": re.compile(r"read|kv"),
    "bw": re.compile(r"get|list|export|unlock"),
    "keyctl": re.compile(r"print|read|pipe"),
}


def _credentials(command: ShellCommand, ground: Ground) -> list[Finding]:
    if any(_CREDENTIALS[command.program].search(word) for word in command.words[1:]):
        return [Finding("high", f"{command.program} reads stored credentials")]
    return [Finding("medium", f"{command.program} works with credentials")]


TABLE: dict[str, Look] = {
    **dict.fromkeys(("rm", "rmdir", "unlink", "rimraf", "trash", "grm"), _rm),
    **dict.fromkeys(("chmod", "chown", "chgrp", "chattr", "setfacl"), _mode),
    **dict.fromkeys(("mv", "cp", "ln", "install", "gcp", "gmv"), _move),
    **dict.fromkeys(("tee", "touch", "mkdir", "truncate", "mkfifo", "mknod", "sponge", "fallocate"), _write_all),
    **dict.fromkeys(("kill", "pkill", "killall"), _kill),
    **dict.fromkeys(("systemctl", "service", "launchctl", "rc-service", "initctl", "supervisorctl"), _service),
    **dict.fromkeys(DATABASES, _database),
    **dict.fromkeys(_CREDENTIALS, _credentials),
    **dict.fromkeys(("tar", "bsdtar", "gtar", "zip", *UNPACKERS), unpacked),
    **dict.fromkeys(("patch", "apply_patch", "gpatch"), patched),
    **dict.fromkeys(("history", "journalctl", "dmesg", "wevtutil", "fc"), _logs),
    "crontab": _crontab,
    "dd": _dd,
}  # fmt: skip

"""Programs that only read, with the options that were looked at. With any other option a program is no reader.

For each program: short options without and with a value, long ones without and with a value, and what its other words
are. ReadOptions that write a file, run a program or read a list of files are left out on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Kind = Literal["paths", "text", "pattern"]  # pattern: the first word is none, the others are paths


class ReadOptions(NamedTuple):
    short: str = ""
    short_values: str = ""
    long: str = ""
    long_values: str = ""
    kind: Kind = "paths"
    most: int = 10_000  # how many words that are no options it may have
    number: bool = False  # takes -5
    words: str = ""  # a pattern that the other words must have


class CallWords(NamedTuple):
    """The words of a call, told apart."""

    operands: list[str]
    values: list[tuple[str, str]]


_GREP = ReadOptions(
    "abcEFGHhiIlLnoPqrRsTUvVwxyZz", "ABCemdDf",
    "count extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case invert-match word-regexp "
    "line-regexp files-with-matches files-without-match only-matching quiet silent no-messages line-number "
    "with-filename "
    "no-filename recursive dereference-recursive text byte-offset initial-tab null null-data color colour "
    "line-buffered",
    "regexp max-count after-context before-context context include exclude exclude-dir binary-files color colour file "
    "directories devices label", kind="pattern", number=True,
)  # fmt: skip
_SUM = ReadOptions("bctwz", "", "check binary text tag quiet status strict warn zero ignore-missing")
_INERT = ReadOptions(kind="text")

READERS: dict[str, ReadOptions] = {
    "ls": ReadOptions("1aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ", "ITw",
                 "all almost-all author directory human-readable inode recursive reverse size color file-type classify "
                 "group-directories-first no-group full-time si numeric-uid-gid dereference zero",
                 "color format sort time time-style ignore hide width block-size indicator-style quoting-style "
                 "classify"),
    "cat": ReadOptions("AbeEnstTuv", "", "show-all number number-nonblank squeeze-blank show-ends show-tabs "
    "show-nonprinting"),
    "head": ReadOptions("qvz", "nc", "quiet silent verbose zero-terminated", "lines bytes", number=True),
    "tail": ReadOptions("qvzfFr", "ncs", "quiet silent verbose follow retry zero-terminated", "lines bytes follow pid",
    number=True),
    "wc": ReadOptions("clmwL", "", "bytes chars lines words max-line-length", "total"),
    "stat": ReadOptions("Lft", "c", "dereference file-system terse", "format printf"),
    "file": ReadOptions("bhiLNk", "", "brief mime mime-type mime-encoding dereference no-dereference keep-going"),
    "du": ReadOptions("0abcDhHkLmPsSx", "dBt", "all bytes human-readable summarize total apparent-size "
    "one-file-system si "
    "null "
                 "separate-dirs dereference", "max-depth exclude block-size threshold time"),
    "df": ReadOptions("ahHiklPTv", "tBx", "all human-readable inodes local portability print-type total", "type "
    "exclude-type block-size output"),
    "tree": ReadOptions("adlfxpshugDFqNrtcUviASnCXJ", "LPI", "noreport prune dirsfirst gitignore du si inodes",
    "filelimit sort"),
    "grep": _GREP, "egrep": _GREP, "fgrep": _GREP,
    "rg": ReadOptions("abcFhHiIlLnNopPqsSuUvwx.0", "ABCegTtmEMrdjf",
                 "files files-with-matches files-without-match line-number no-line-number no-heading heading hidden "
                 "no-ignore "
                 "count count-matches ignore-case smart-case case-sensitive word-regexp fixed-strings multiline json "
                 "stats type-list "
                 "no-messages vimgrep trim only-matching column pcre2 invert-match no-filename with-filename follow "
                 "null "
                 "no-ignore-vcs unrestricted text line-regexp quiet passthru pretty version multiline-dotall no-config",
                 "glob iglob type type-not max-count max-depth context after-context before-context sort sortr color "
                 "colors "
                 "regexp replace encoding max-columns threads max-filesize ignore-file file", kind="pattern"),
    "cut": ReadOptions("nsz", "bcdf", "complement only-delimited zero-terminated", "bytes characters fields delimiter "
    "output-delimiter"),
    "tr": ReadOptions("cCdst", "", "complement delete squeeze-repeats truncate-set1", kind="text"),
    "paste": ReadOptions("sz", "d", "serial zero-terminated", "delimiters"),
    "sort": ReadOptions("bdfghiMnRrVcCmsuz", "kt",
                   "numeric-sort reverse unique human-numeric-sort version-sort ignore-case stable check "
                   "zero-terminated "
                   "general-numeric-sort month-sort dictionary-order ignore-leading-blanks ignore-nonprinting merge",
                   "key field-separator parallel"),
    "uniq": ReadOptions("cdDiuz", "fsw", "count repeated unique ignore-case zero-terminated all-repeated",
                   "skip-fields skip-chars check-chars all-repeated group", most=1),
    "xxd": ReadOptions("pbuie", "lscgo", most=1),
    "column": ReadOptions("tnex", "sco", "table", "separator output-separator columns"),
    "fold": ReadOptions("bs", "w", "bytes spaces", "width"), "expand": ReadOptions("i", "t", "initial", "tabs"),
    "unexpand": ReadOptions("a", "t", "all", "tabs"), "comm": ReadOptions("123z", "", "total check-order nocheck-order",
    "output-delimiter"),
    "join": ReadOptions("iz", "aejto12v", "ignore-case header"), "cmp": ReadOptions("bls", "in", "print-bytes silent "
    "quiet "
    "verbose", "bytes"),
    "diff": ReadOptions("abBcdeEHilnNpqrstTuwyZ", "CUIxW",
                   "brief unified recursive ignore-all-space ignore-space-change ignore-blank-lines side-by-side "
                   "minimal "
                   "suppress-common-lines new-file text report-identical-files ignore-case no-dereference "
                   "show-c-function color",
                   "unified color exclude width context label ignore-matching-lines"),
    "md5sum": _SUM, "sha1sum": _SUM, "sha224sum": _SUM, "sha256sum": _SUM, "sha384sum": _SUM, "sha512sum": _SUM,
    "b2sum": _SUM,
    "cksum": ReadOptions("", "a", "check", "algorithm"), "shasum": ReadOptions("bctU0q", "a", "check", "algorithm"),
    "od": ReadOptions("abcdfilosxv", "ANjtw", "output-duplicates", "address-radix read-bytes skip-bytes format width"),
    "hexdump": ReadOptions("bcCdovx", "ns"), "strings": ReadOptions("af", "net", "all print-file-name", "bytes radix "
    "encoding"),
    "nl": ReadOptions("p", "bdfhilnsvw"), "tac": ReadOptions("br", "s", "before regex", "separator"),
    "rev": ReadOptions(),
    "jq": ReadOptions("rcCMaSesnRj", "", "raw-output compact-output slurp null-input exit-status tab sort-keys "
    "color-output "
                 "monochrome-output raw-input join-output ascii-output", "indent", kind="pattern"),
    "realpath": ReadOptions("eLmPqsz", "", "canonicalize-existing canonicalize-missing no-symlinks quiet zero strip",
                       "relative-to relative-base"),
    "readlink": ReadOptions("fenmqsvz", "", "canonicalize canonicalize-existing canonicalize-missing no-newline "
    "quiet zero"),
    "less": ReadOptions("NSRFXiIErnsqQ"), "more": ReadOptions(), "bat": ReadOptions("pnA", "lrH", "plain number "
    "show-all",
                                                                     "paging style language line-range color theme "
                                                                     "wrap"),
    "fd": ReadOptions("HIuaLpFgis0q1", "dteES", "hidden no-ignore absolute-path follow full-path glob fixed-strings "
    "ignore-case "
                 "case-sensitive print0 quiet unrestricted", "max-depth min-depth type extension exclude size color "
                 "changed-within "
                 "changed-before max-results exact-depth", kind="pattern"),
    "eza": ReadOptions("1aldrRTxFghHiS", "L", "all long tree recurse git-ignore header oneline", "level sort color "
    "icons"),
    "exa": ReadOptions("1aldrRTxFghHiS", "L", "all long tree recurse git-ignore header oneline", "level sort color"),
    "nm": ReadOptions("AgDunpC"), "objdump": ReadOptions("dDhxtTrRspfaC"), "readelf": ReadOptions("ahlSsrdVWne"),
    "size": ReadOptions("ABdxt"),
    "base64": ReadOptions("dDi", "w", "decode ignore-garbage", "wrap"), "base32": ReadOptions("di", "w", "decode",
    "wrap"),
    "numfmt": ReadOptions("", "d", "header", "from to suffix padding field format delimiter", kind="text"),
    "fmt": ReadOptions("cstu", "wpg", "", "width"), "look": ReadOptions("bdf", "t", kind="pattern"),
    "tsort": ReadOptions(),
    "iconv": ReadOptions("cl", "ft", "list", "from-code to-code"), "tokei": ReadOptions(),
    "cd": ReadOptions("LPe"), "test": _INERT, "[": _INERT, "echo": _INERT, "true": _INERT, "false": _INERT, ":": _INERT,
    "printf": _INERT, "pwd": ReadOptions("LP", most=0), "seq": ReadOptions("w", "fs", "equal-width", "format separator",
    "text", number=True),
    "sleep": ReadOptions(kind="text", words=r"[\d.]+[smhd]?"), "basename": ReadOptions("az", "s", "multiple zero",
    "suffix",
    "text"),
    "dirname": ReadOptions("z", "", "zero", kind="text"), "expr": _INERT, "factor": _INERT, "getconf": _INERT,
    "date": ReadOptions("uR", "dI", "utc universal rfc-email iso-8601", "date iso-8601 rfc-3339", "text",
    words=r"\+.*"),
    "whoami": ReadOptions(most=0), "arch": ReadOptions(most=0), "nproc": ReadOptions("", "", "all", "ignore", most=0),
    "tty": ReadOptions("s", most=0),
    "uptime": ReadOptions("ps", "", "pretty since", most=0), "sw_vers": ReadOptions(most=0), "groups": _INERT,
    "id": ReadOptions("Ggnruz", "", "user group groups name real zero", kind="text"),
    "uname": ReadOptions("asnrvmpio", "", "all kernel-name nodename kernel-release kernel-version machine processor",
    most=0),
    "which": ReadOptions("as", "", "all", kind="text"), "whereis": ReadOptions("bms", kind="text"),
    "type": ReadOptions("afptP",
    kind="text"),
    "command": ReadOptions("vV", kind="text"), "free": ReadOptions("bkmghtw", "", "human mega giga kilo total wide",
    most=0),
    "locale": ReadOptions("ak", kind="text"), "cal": ReadOptions("3jmy", "ABn", kind="text"),
    "hostname": ReadOptions("fsiId", most=0),
    "ps": ReadOptions("efFlAjHLTw", "poCuUt", "forest no-headers", "sort format pid ppid user", "text",
    words=r"(a?u?x?w{0,2}|axu)f?"),
    "pgrep": ReadOptions("lfaxnovc", "uUPt", "list-name list-full full exact newest oldest count", kind="text"),
    "lscpu": ReadOptions("aebJp", most=0), "lsblk": ReadOptions("abdfilmnpPrstJ", "oeI", "json", "output", most=0),
    "exit": ReadOptions(kind="text"), "break": ReadOptions(kind="text"), "continue": ReadOptions(kind="text"),
    "wait": ReadOptions(kind="text"),
    "jobs": ReadOptions("lp", kind="text"), "set": _INERT, "umask": ReadOptions(most=0), "export": _INERT,
}  # fmt: skip
_ANYTHING = frozenset(
    {"echo", "printf", "test", "[", ":", "true", "false", "expr", "set", "export", "getconf", "factor", "groups"}
)
# Values of options that are paths.
FILE_OPTIONS = frozenset({"-f", "--file", "--ignore-file", "--relative-to", "--relative-base"})
_OPTIONAL = frozenset(
    {"--color", "--colour", "--unified", "--context", "--classify", "--follow", "--iso-8601", "--all-repeated"}
)
_READS_ENVIRONMENT = re.compile(r"env|ENV|import|include|input_filename|\bmodule|debug|stderr|halt|\$__")


def read_call(name: str, words: Sequence[str]) -> CallWords | str:
    """The words after a reader's name, told apart; or the word with which it is no reader."""
    reader = READERS[name]
    if name in _ANYTHING:
        return CallWords([], [])
    call = told_apart(reader, words)
    if isinstance(call, str):
        return call
    if len(call.operands) > reader.most or (
        reader.most < 100 and any(re.search(r"[*?\[\0]", word) for word in call.operands)
    ):
        return call.operands[-1]
    if reader.words and (odd := next((word for word in call.operands if not re.fullmatch(reader.words, word)), None)):
        return odd
    if name in ("less", "more") and (plus := next((word for word in call.operands if word.startswith("+")), None)):
        return plus
    if name == "jq" and call.operands and _READS_ENVIRONMENT.search(call.operands[0]):
        return call.operands[0]
    if reader.kind == "text":
        return CallWords([], call.values)
    if reader.kind == "pattern" and not any(option in ("-e", "-f", "--regexp", "--file") for option, _ in call.values):
        return CallWords(call.operands if "--files" in words and name == "rg" else call.operands[1:], call.values)
    return call


def told_apart(reader: ReadOptions, words: Sequence[str]) -> CallWords | str:
    long, long_values = set(reader.long.split()), set(reader.long_values.split())
    operands: list[str] = []
    values: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            operands += words[at:]
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
        elif word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            if equals and option in long_values:
                values.append((f"--{option}", value))
            elif not equals and option in long:
                pass
            elif not equals and option in long_values and f"--{option}" not in _OPTIONAL and at < len(words):
                values.append((f"--{option}", words[at]))
                at += 1
            else:
                return word
        elif reader.number and re.fullmatch(r"-\d+", word):
            pass
        else:
            for position, letter in enumerate(word[1:], 2):
                if letter in reader.short_values:
                    if word[position:]:
                        values.append((f"-{letter}", word[position:]))
                    elif at < len(words):
                        values.append((f"-{letter}", words[at]))
                        at += 1
                    else:
                        return word
                    break
                if letter not in reader.short:
                    return word
    return CallWords(operands, values)

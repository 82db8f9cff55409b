"""The commands of git that only read, with the options that were looked at."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .readers import ReadOptions, told_apart

_LOG = (
    "oneline graph all decorate stat numstat shortstat name-only name-status patch no-patch summary abbrev-commit "
    "follow "
    "reverse merges no-merges first-parent cached staged no-color color color-words word-diff minimal patience "
    "histogram "
    "ignore-all-space ignore-space-change ignore-blank-lines ignore-space-at-eol check raw full-index no-renames "
    "find-renames "
    "exit-code quiet date-order topo-order author-date-order left-right cherry-pick cherry-mark branches tags "
    "remotes no-decorate "
    "no-ext-diff no-textconv compact-summary dirstat root walk-reflogs use-mailmap full-history "
    "simplify-by-decoration boundary "
    "merge-base function-context count no-walk no-commit-id find-copies patch-with-stat relative-date no-relative cc "
    "regexp-ignore-case "
    "extended-regexp fixed-strings perl-regexp all-match invert-grep no-prefix pickaxe-all pickaxe-regex show-pulls"
)
_LOG_VALUES = (
    "format pretty date since until after before author committer grep max-count skip diff-filter unified stat "
    "abbrev decorate "
    "color word-diff relative branches tags remotes diff-algorithm ignore-submodules find-renames min-parents "
    "max-parents glob "
    "exclude color-moved word-diff-regex find-copies src-prefix dst-prefix line-prefix"
)
_HISTORY = ReadOptions("puqizabwWrtmcsgELFP0123456789", "nSGLUMC", _LOG, _LOG_VALUES, number=True)
_READS: dict[str, ReadOptions] = {
    **dict.fromkeys(("log", "show", "diff", "rev-list", "whatchanged", "range-diff", "diff-tree", "diff-index",
    "diff-files"),
                    _HISTORY),
    "status": ReadOptions("sbvzu", "", "short branch porcelain ignored verbose show-stash long ahead-behind no-renames "
    "untracked-files",
                     "porcelain untracked-files ignored ignore-submodules column"),
    "rev-parse": ReadOptions("q", "", "show-toplevel abbrev-ref short verify git-dir is-inside-work-tree show-prefix "
    "show-cdup all branches "
                        "absolute-git-dir git-common-dir symbolic-full-name tags quiet is-bare-repository", "short "
                        "abbrev-ref"),
    "ls-files": ReadOptions("cdmoistuzv", "x", "cached deleted modified others ignored stage exclude-standard "
    "full-name "
    "error-unmatch "
                       "directory unmerged", "exclude"),
    "ls-tree": ReadOptions("dtrlz", "", "name-only name-status full-tree full-name long object-only", "format abbrev"),
    "cat-file": ReadOptions("pets"),
    "blame": ReadOptions("swtlefnpMCb", "L", "line-porcelain porcelain show-email root show-name show-number", "date "
    "abbrev"),
    "annotate": ReadOptions("swtlefnpMCb", "L"),
    "describe": ReadOptions("", "", "tags always dirty long all exact-match first-parent contains", "abbrev match "
    "exclude "
    "dirty candidates"),
    "shortlog": ReadOptions("snec", "", "summary numbered email all no-merges committer", "group since until author "
    "format"),
    "merge-base": ReadOptions("a", "", "is-ancestor octopus fork-point all independent"),
    "count-objects": ReadOptions("vH"),
    "for-each-ref": ReadOptions("", "", "ignore-case", "format sort count contains merged no-merged points-at"),
    "show-ref": ReadOptions("dsq", "", "heads tags verify hash head dereference quiet branches"),
    "cherry": ReadOptions("v"),
    "check-ignore": ReadOptions("vnqz", "", "verbose non-matching quiet"), "check-attr": ReadOptions("az", "", "all "
    "cached"),
    "var": ReadOptions(),
    "name-rev": ReadOptions("", "", "tags name-only always all", "refs exclude"), "version": ReadOptions("", "",
    "build-options"),
    "show-branch": ReadOptions("ar", "", "all remotes current topo-order date-order list"),
    "grep": ReadOptions("niIlLcwvEFPGhHoaqpWz", "ABCemf", "line-number count name-only files-with-matches "
    "files-without-match ignore-case "
                   "word-regexp fixed-strings perl-regexp cached untracked extended-regexp all-match and or not "
                   "heading break "
                   "show-function function-context only-matching invert-match text column full-name quiet no-color "
                   "color",
                   "max-depth max-count threads context after-context before-context color", number=True),
}  # fmt: skip
_LISTS: dict[str, ReadOptions] = {
    "branch": ReadOptions("arvl", "", "list all remotes show-current verbose no-color ignore-case column no-column",
                     "sort format contains no-contains merged no-merged points-at column abbrev color"),
    "tag": ReadOptions("ln", "", "list no-column ignore-case", "sort format contains no-contains merged no-merged "
    "points-at column", number=True),
    "worktree": ReadOptions("v", "", "porcelain verbose"), "notes": ReadOptions(), "bisect": ReadOptions(),
    "submodule": ReadOptions("",
    "", "recursive cached"),
    "remote": ReadOptions("v", "", "verbose all push"),
    "config": ReadOptions("lz", "", "get get-all get-regexp list show-origin show-scope name-only null global local "
    "system worktree bool int "
                     "path all includes no-includes", "type default get get-all get-regexp"),
    "stash": _HISTORY, "reflog": _HISTORY,
}  # fmt: skip
_FIRST = {
    "worktree": ("list",), "notes": ("list", "show"), "bisect": ("log",), "submodule": ("status",),
    "stash": ("list", "show"), "remote": ("get-url",),
}  # fmt: skip
_ASKING = re.compile(r"-l|--list|-n\d*|--(contains|no-contains|merged|no-merged|points-at)(=.*)?")
# Placeholders for which git runs gpg.
_SIGNATURE = re.compile(r"%G|signature|%\(trailers:.*cmd", re.IGNORECASE)


def only_reads(command: str, rest: Sequence[str]) -> bool:
    """Whether ``git command rest…`` shows something and changes nothing."""
    reader = _READS.get(command)
    if reader is not None:
        call = told_apart(reader, rest)
        return not isinstance(call, str) and not any(_SIGNATURE.search(value) for _, value in call.values)
    lister = _LISTS.get(command)
    if lister is None:
        return False
    first = _FIRST.get(command)
    if first is not None:
        if rest[:1] and rest[0] in first:
            rest = rest[1:]
        elif command != "remote" or any(not word.startswith("-") for word in rest):
            return False
    call = told_apart(lister, rest)
    if isinstance(call, str) or any(_SIGNATURE.search(value) for _, value in call.values):
        return False
    match command:
        case "branch" | "tag":
            return not call.operands or any(_ASKING.fullmatch(word) for word in rest)
        case "config":
            return (
                bool(call.values)
                or rest[:1] in (["list"], ["get"])
                or any(word in ("-l", "--list", "--get", "--get-all", "--get-regexp") for word in rest)
            )
        case "reflog":
            return not call.operands or call.operands[0] not in ("expire", "delete", "drop", "write")
        case _:
            return True

"""The page's modules as one file, and its styles as another: each travels in one request, and compresses far better
than many small ones.

The modules are written so that this is simple (``tests/server/test_page.py`` holds them to it): imports at the top,
exports by name, no circles, no text in backquotes that goes over lines. Each becomes a function that is called once, in
the order of what it needs; indentation, spaces and line ends that mean nothing and comments are left out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable

_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"([^"]+)";$\n?', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)

_SPACES = re.compile(r" *([{}()\[\],;:=<>?&|!*]) *")
"""Not + and -: two of them in a row would be another sign."""
_BEFORE_PATTERN = re.compile(r"(?:^|[({\[,;:=&|?!]|=>|\breturn) *$")


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """``entry`` and everything that it imports; ``read`` gives the source at a path.

    >>> sources = {"/a.js": 'import { b as c } from "./b.js";\\nc();', "/b.js": "export const b = () => 1;"}
    >>> print(bundle("/a.js", sources.__getitem__))
    const m0=(()=>{const b=()=>1;return{b}})();
    const m1=(()=>{const{b:c}=m0;c();return{}})();
    """
    modules: dict[str, str] = {}
    under_way: list[str] = []

    def add(path: str) -> str:
        if path in modules:
            return modules[path]
        if path in under_way:
            raise ValueError(f"the page's modules import each other in a circle: {' → '.join([*under_way, path])}")
        under_way.append(path)
        source = read(path)
        here = posixpath.dirname(path)
        needed = [
            (names, add(posixpath.normpath(posixpath.join(here, other)))) for names, other in _IMPORT.findall(source)
        ]
        under_way.pop()
        taken = [f"const{{{_renamed(names)}}}={module};" for names, module in needed if names]
        body = _IMPORT.sub("", source)
        exported = ",".join(_EXPORT.findall(body))
        lines = [line for line in map(squeezed, [*taken, *_EXPORT.sub("", body).split("\n")]) if line]
        modules[path] = f"m{len(written)}"
        written.append(joined([f"const {modules[path]}=(()=>{{", *lines, f"return{{{exported}}}}})();"]))
        return modules[path]

    written: list[str] = []
    add(posixpath.normpath(entry))
    return "\n".join(written)


def joined(lines: Iterable[str]) -> str:
    """Without the line ends after which a statement goes on or has ended, and without the sign behind the last of a
    list or block.

    >>> joined(["f(", "a,", "b,", ");", "if(c){", "d();", "return;", "}"])
    'f(a,b);if(c){d();return}'
    """
    out = ""
    for line in lines:
        if (out.endswith(",") and line.startswith((")", "]", "}"))) or (out.endswith(";") and line.startswith("}")):
            out = out[:-1]
        goes_on = out.endswith(("{", "(", "[", ",", ";")) or line.startswith(("}", ")", "]", ".", "?", ":", "&&", "||"))
        out += line if goes_on or not out else f"\n{line}"
    return out


def stylesheet(sources: Iterable[str]) -> str:
    """Style sheets as one, without indentation and line ends; ``sources`` have no comments.

    >>> stylesheet(["a {\\n  color: red;\\n}\\n", "b > a:hover,\\nb {\\n  margin: 0 1px;\\n}"])
    'a{color:red}b > a:hover,b{margin:0 1px}'
    """
    lines = (line.strip() for source in sources for line in source.split("\n"))
    shown = (line.replace(": ", ":", 1) if line.endswith(";") else line.replace(" {", "{") for line in lines)
    return "".join(f"{line} " if line and line[-1] not in "{};," else line for line in shown).replace(";}", "}")


def squeezed(line: str) -> str:
    """Without the spaces beside signs and without a comment at its end; texts and patterns stay as they are.

    >>> squeezed('  if (a === "x = y" && /[/ ]/.test(b)) return `${c ? ` d ` : 1} e`; // why')
    'if(a==="x = y"&&/[/ ]/.test(b))return `${c ? ` d ` : 1} e`;'
    """
    pieces: list[str] = []
    code, at = "", 0
    while at < len(line):
        letter = line[at]
        begins = letter == "/" and _BEFORE_PATTERN.search(code or (pieces[-1] if pieces else ""))
        end = at + 1
        if line.startswith("//", at):
            break
        if letter in "\"'":
            end = _text_end(line, at)
        elif letter == "`":
            end = _template_end(line, at)
        elif begins:
            end = _pattern_end(line, at)
        else:
            code += letter
            at = end
            continue
        pieces += [code, line[at:end]]
        code, at = "", end
    pieces.append(code)
    squeezed_pieces = [_SPACES.sub(r"\1", piece) if number % 2 == 0 else piece for number, piece in enumerate(pieces)]
    return "".join(squeezed_pieces).strip()


def _text_end(line: str, at: int) -> int:
    end = at + 1
    while line[end] != line[at]:
        end += 2 if line[end] == "\\" else 1
    return end + 1


def _pattern_end(line: str, at: int) -> int:
    end, inside = at + 1, False
    while line[end] != "/" or inside:
        inside = line[end] == "[" or (inside and line[end] != "]")
        end += 2 if line[end] == "\\" else 1
    return end + 1


def _template_end(line: str, at: int) -> int:
    end = at + 1
    while line[end] != "`":
        if line.startswith("${", end):
            depth, end = 1, end + 2
            while depth:
                if line[end] in "\"'":
                    end = _text_end(line, end)
                elif line[end] == "`":
                    end = _template_end(line, end)
                else:
                    depth += {"{": 1, "}": -1}.get(line[end], 0)
                    end += 1
        else:
            end += 2 if line[end] == "\\" else 1
    return end + 1


def _renamed(names: str) -> str:
    listed = [name.strip() for name in names.split(",") if name.strip()]
    return ",".join(name.replace(" as ", ":") for name in listed)

"""The page's modules as one file: it travels in one request, and compresses far better than many small ones.

The modules are written so that this is simple (``tests/server/test_page.py`` holds them to it): imports at the top,
exports by name, no circles, no text in backquotes that goes over lines. Each becomes a function that is called once, in
the order of what it needs; the indentation is left out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

_IMPORT = re.compile(r'^import\s+(?:\{([^}]*)\}\s+from\s+)?"([^"]+)";$\n?', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """``entry`` and everything that it imports; ``read`` gives the source at a path.

    >>> sources = {"/a.js": 'import { b as c } from "./b.js";\\nc();', "/b.js": "export const b = () => 1;"}
    >>> print(bundle("/a.js", sources.__getitem__))
    const m0=(()=>{
    const b = () => 1;
    return{b}})();
    const m1=(()=>{
    const{b:c}=m0;
    c();
    return{}})();
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
        lines = [line.strip() for line in [*taken, *_EXPORT.sub("", body).split("\n")] if line.strip()]
        modules[path] = f"m{len(written)}"
        written.append("\n".join([f"const {modules[path]}=(()=>{{", *lines, f"return{{{exported}}}}})();"]))
        return modules[path]

    written: list[str] = []
    add(posixpath.normpath(entry))
    return "\n".join(written)


def _renamed(names: str) -> str:
    listed = [name.strip() for name in names.split(",") if name.strip()]
    return ",".join(name.replace(" as ", ":") for name in listed)

# SPDX-License-Identifier: Apache-2.0
"""The public names of the headers, read as text: no compiler and no Doxygen is asked.

A class is its whole name, its bases, and the functions and values that it declares in public; a namespace is the functions in it. A folder or a
namespace `detail` is not public, and `inline namespace` is no part of a name.
"""
import dataclasses
import re

TOKEN = re.compile(r"""
    //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*       # comments, preprocessor
  | R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)" | "(?:[^"\\\n]|\\.)*"   # texts
  | (?P<number>\.?\d(?:[\w.]|'\w)*) | '(?:[^'\\\n]|\\.)+'        # 24'000 is a number, 'a' a character
  | (?P<token>[A-Za-z_]\w* | :: | -> | && | \|\| | <=>? | >= | [^\s\w])""", re.X | re.S | re.M)
OPENS, CLOSES = "({[", ")}]"
NO_NAMES = {"requires", "noexcept", "explicit", "decltype", "alignas", "sizeof", "if", "catch", "static_assert", "assert", "return", "defined",
            "__attribute__", "const", "auto"}


@dataclasses.dataclass
class Public:
    """What the headers have: by whole names."""
    kinds: dict = dataclasses.field(default_factory=dict)    # class, struct, enum, concept, alias
    calls: dict = dataclasses.field(default_factory=dict)    # of a class or namespace: its public functions
    bases: dict = dataclasses.field(default_factory=dict)    # of a class: names as they are written
    aliases: dict = dataclasses.field(default_factory=dict)  # of an alias: what its target is called
    values: set = dataclasses.field(default_factory=set)     # members that are no functions, and enumerators

    def calls_of(self, owner, seen=()):
        """The public functions of a class with those of its bases, or of a namespace."""
        owner = self.whole_name(self.aliases.get(owner, owner), owner)
        found = set(self.calls.get(owner, ()))
        for base in self.bases.get(owner, ()):
            whole = self.whole_name(base, owner)
            if whole and whole not in seen:
                found |= self.calls_of(whole, (*seen, owner))
        return found

    def whole_name(self, name, inside):
        """A name as it is written inside of another one."""
        parts = inside.split("::")
        for count in range(len(parts), -1, -1):
            whole = "::".join([*parts[:count], name])
            if whole in self.kinds or whole in self.calls:
                return whole
        return None


def tokens_of(text):
    return [found["token"] or "0" for found in TOKEN.finditer(text) if found["token"] or found["number"]]


def end_of_group(tokens, at):
    """The place behind the bracket that closes the one at this place."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at] in OPENS) - (tokens[at] in CLOSES)
        at += 1
        if depth == 0:
            return at
    return at


def without_groups(head):
    """(token, what is before it) of a head at its top: without what is in brackets, angle brackets and attributes."""
    angles, at, before = 0, 0, ""
    while at < len(head):
        token = head[at]
        if token == "<" and (re.match(r"\w", before) or angles):
            angles += 1
        elif token == ">" and angles:
            angles -= 1
        elif token in OPENS:
            if not angles:
                yield token, before
            at = end_of_group(head, at) - 1
            token = head[at] if at < len(head) else ""
        elif not angles:
            yield token, before
        before = token
        at += 1


def is_word(token):
    return re.match(r"[A-Za-z_]", token) is not None


def function_of(top):
    """The name in front of the first parameters, or None: `=` in front of them begins a value."""
    for token, before in top:
        if token == "operator":
            return "operator"
        if token == "=":
            return None
        if token == "(" and is_word(before) and before not in NO_NAMES:
            return before
    return None


def class_of(top):
    """(kind, name, bases) of the head of a class, or None."""
    words = [token for token, _ in top if token not in OPENS]
    for at, word in enumerate(words):
        if word in ("class", "struct", "union", "enum"):
            rest = [it for it in words[at + 1:] if it not in ("class", "struct", "final", "alignas", "[", "]")]
            if not rest or not is_word(rest[0]):
                return None
            bases, name = [], ""
            for it in rest[rest.index(":") + 1:] if ":" in rest and word != "enum" else ():
                if is_word(it):
                    name = name + it if name.endswith("::") else it
                elif it == "::":
                    name += it
                elif it == ",":
                    bases.append(name)
                    name = ""
            return word, rest[0], [base for base in [*bases, name] if base]
        if word == "(" or word == "operator":
            return None
    return None


def statement(tokens, at):
    """(head, place of the `{` of a body or None, place behind it) of the statement that begins here."""
    head = []
    while at < len(tokens):
        token = tokens[at]
        if token == ";":
            return head, None, at + 1
        if token == "}":
            return head, None, at
        if token == "{":
            return head, at, at
        if token in OPENS:
            end = end_of_group(tokens, at)
            head += tokens[at:end]
            at = end
            continue
        head.append(token)
        at += 1
        if token == ":" and head[0] in ("public", "private", "protected") and len(head) == 2:
            return head, None, at
    return head, None, at


def behind_body(tokens, at):
    """Behind the `{...}` at this place, and what belongs to it: more members of a constructor's list, a `;`."""
    at = end_of_group(tokens, at)
    while at < len(tokens) and tokens[at] in (",", "{"):
        if tokens[at] == ",":
            while at < len(tokens) and tokens[at] not in "{;":
                at = end_of_group(tokens, at) if tokens[at] in "([" else at + 1
            if at < len(tokens) and tokens[at] == ";":
                return at + 1
        at = end_of_group(tokens, at)
    return at + 1 if at < len(tokens) and tokens[at] == ";" else at


def read_scope(public, tokens, at, scope, access):
    """The declarations from here to the `}` of this scope. `access` is None in a namespace."""
    while at < len(tokens) and tokens[at] != "}":
        head, body, at = statement(tokens, at)
        owner = "::".join(scope)
        shown = access in (None, "public")
        if body is None and len(head) == 2 and head[1] == ":":
            access = head[0]
            continue
        if head and "namespace" in head[:2] and body is not None:
            path = [it for it in head[head.index("namespace") + 1:] if it != "::"]
            inner = [it for at_name, it in enumerate(path) if it != "inline" and (at_name == 0 or path[at_name - 1] != "inline")]
            at = read_scope(public, tokens, body + 1, [*scope, *([] if head[0] == "inline" else inner)], None) + 1
            continue
        top = list(without_groups(head))
        found = class_of(top)
        plain = [token for token, _ in top]
        using = plain.index("using") if "using" in plain else None
        if using is not None and "=" in plain[using:]:
            if shown:
                whole, target = f"{owner}::{plain[using + 1]}", plain[plain.index("=", using) + 1:]
                public.kinds.setdefault(whole, "alias")
                public.aliases.setdefault(whole, "".join(it for it in target if is_word(it) or it == "::").removeprefix("typename"))
        elif "concept" in head and "=" in head:
            public.kinds.setdefault(f"{owner}::{head[head.index('concept') + 1]}", "concept")
        elif found and body is not None:
            kind, name, bases = found
            whole = f"{owner}::{name}"
            inner = public if shown else Public()
            inner.kinds[whole] = kind
            inner.calls.setdefault(whole, set())
            inner.bases.setdefault(whole, []).extend(bases)
            if kind == "enum":
                at = end_of_group(tokens, body)
                words = [token for token, before in without_groups(tokens[body + 1:at - 1]) if before in ("", ",", "]") and is_word(token)]
                inner.values |= {f"{whole}::{word}" for word in words}
            else:
                at = read_scope(inner, tokens, body + 1, [*scope, name], "private" if kind == "class" else "public") + 1
            _, _, at = statement(tokens, at)
            continue
        elif shown and using is not None:
            public.calls.setdefault(owner, set()).add(head[-1])
        elif shown and head and head[0] not in ("friend", "using", "static_assert", "extern"):
            if name := function_of(top):
                public.calls.setdefault(owner, set()).add(name)
            else:
                words = [it for it in plain[:plain.index("=")] if is_word(it)] if "=" in plain else [it for it in plain if is_word(it)]
                public.values |= {f"{owner}::{words[-1]}"} if words else set()
        if body is not None:
            at = behind_body(tokens, body)
    return at


def read(root, *folders):
    """All public names of the headers of this tree; `folders` names others than include/."""
    public = Public()
    for path in sorted(path for folder in folders or ("include",) for path in (root / folder).rglob("*.[hc][pu][ph]")):
        if "detail" not in path.parts:
            read_scope(public, tokens_of(path.read_text(encoding="utf-8")), 0, [], None)
    for table in (public.kinds, public.calls, public.bases, public.aliases):
        for whole in [it for it in table if "detail" in it.split("::")]:
            del table[whole]
    public.values = {it for it in public.values if "detail" not in it.split("::")}
    return public

# SPDX-License-Identifier: Apache-2.0
"""The names that the headers promise to users: what is declared in namespace shardkit and below, but for `detail`."""
import collections
import functools
import re

# `sentence` is the first one of the docstring, or empty.
Name = collections.namedtuple("Name", "name kind header line sentence")

TOKENS = re.compile(
    r"""(?P<doc>///(?!<)[^\n]*)|(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<directive>^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)"""
    r"""|(?P<text>"(?:[^"\\\n]|\\.)*"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+')|(?P<blank>\s+)|(?P<other>\w+|.)""",
    re.MULTILINE | re.DOTALL)
NAMESPACE = re.compile(r"^(inline )?namespace ?(?P<name>[\w:]*(?: ?:: ?inline \w+)?(?: \w+)?)$")
OPENING, CLOSING = "([{", ")]}"


def without_angles(text):
    """`text` without what stands in angle brackets that open after a name, as template arguments do."""
    kept, depth = [], 0
    for position, char in enumerate(text):
        if char == "<" and re.search(r"[\w] ?$", text[:position]):
            depth += 1
        elif char == ">" and depth > 0 and text[position - 1] != "-":
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept)


def without_parenthesis(text, opening):
    """`text` without the balanced parenthesis that `opening` ends with."""
    while True:
        found = re.search(opening, text)
        if not found:
            return text
        depth, end = 1, found.end()
        while end < len(text) and depth > 0:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[:found.start()] + text[end:]


def plain(head):
    """A declaration without attributes, macros, template parameters and arguments."""
    code = re.sub(r"\[\[.*?\]\]", " ", head)
    code = re.sub(r"\btemplate ?(?=<)", "template", code)
    code = without_angles(code)
    code = without_parenthesis(code, r"\b(?:requires|decltype|alignas|__attribute__) ?\(")
    code = re.sub(r"\btemplate\b|\b[A-Z][A-Z0-9]*_[A-Z_0-9]+\b", " ", code)
    return re.sub(r"\s+", " ", code).strip()


def body_ends(head):
    """Whether the declaration is over at the brace that closes: a function's."""
    code = plain(head)
    if re.match(r"(requires .*?)?(class|struct|union|enum|concept)\b", code):
        return False
    return "operator" in code or ("(" in code and "=" not in code.split("(")[0])


def declared(head):
    """(kind, name) of what a declaration without its body declares, or None."""
    if head.startswith("SHARDKIT_CORE_INLINE "):  # a definition: another header declares it
        return None
    specialises = re.match(r"\s*template ?< ?>", head) is not None
    code = plain(head)
    defines = "SHARDKIT_CORE_INLINE" in head  # what is declared for both forms
    if specialises or defines or re.match(r"(static_assert|using namespace|using detail::|namespace|friend|extern)\b|$", code):
        return None
    for kind, pattern in (("concept", r"(?:requires .*)?concept (\w+)"), ("type", r"using (\w+) ?="),
                          ("type", r"enum (?:class |struct )?(\w+)")):
        found = re.match(pattern, code)
        if found:
            return kind, found[1]
    found = re.match(r"(?:requires .*?)?(?:class|struct|union) (\w+)(.*)$", code)
    if found:
        # A partial specialisation has arguments behind its name, and a mere declaration no body.
        specialised = re.search(r"\b" + found[1] + r" ?<", re.sub(r"template ?<.*?> ", "", head.split(" : ")[0]))
        return None if specialised or not head.endswith("{") else ("type", found[1])
    if "operator" in code or re.match(r"(explicit )?(\w+) ?\(.*\) ?-> ?\2", code):
        return None
    pointer = re.match(r"[^(=]*\(\* ?(\w+)\) ?\(", code)  # to functions
    if pointer:
        return "value", pointer[1]
    before = code.split("(")[0]
    if "=" in before or "(" not in code:
        name = re.search(r"(\w+) ?(?:\[.*)?(?:=.*|\{.*)?$", before.split("=")[0].rstrip(" {"))
        raw = re.search(r"(\w+) ?<[^=]*> ?=", head)
        return None if raw or not name or " " not in before.strip() else ("value", name[1])
    name = re.search(r"(\w+) ?$", before)
    return ("function", name[1]) if name and "::" not in before[-len(name[1]) - 3:] else None


def first_sentence(doc):
    """The text up to the first full stop, without lines of code and what comes behind @ and `Order:`."""
    lines = [line.removeprefix("///") for line in doc]
    text = []
    for line in lines:
        if re.match(r" (@|(Order|Cost|Shapes|Source): )", line):
            break
        if not line.startswith("     "):
            text.append(line.strip())
    found = re.match(r"(.*?)\.(?= |$)|(.*?):?$", " ".join(text).strip())
    return (found[1] or found[2] or "").strip()


@functools.cache
def names_of(header, text):
    """Every declaration of a public namespace in a header's text."""
    spaces, head, doc, line, depth, skipping = [], "", [], 1, 0, 0
    found, begun, counted = [], 0, 0
    for token in TOKENS.finditer(text):
        kind, code = token.lastgroup, token.group()
        line += text.count("\n", counted, token.start())
        counted = token.start()
        if kind == "directive" or kind == "comment":
            continue
        if skipping:
            skipping += {"{": 1, "}": -1}.get(code, 0) if kind == "other" else 0
            if skipping == 0 and body_ends(head.removesuffix("{")):
                head = ""
            continue
        if kind == "doc":
            doc = doc + [code] if not head.strip() else doc
            continue
        if kind == "blank":
            if code.count("\n") > 1 and not head.strip():
                doc = []
            head += " " if head and not head.endswith(" ") else ""
            continue
        if not head.strip():
            head, begun = "", line
        depth += code in OPENING and code != "{"
        depth -= code in CLOSING and code != "}"
        if kind == "text" or depth > 0 or code not in "{};":
            head += code
            continue
        if code == "}":
            if spaces:
                spaces.pop()
            head, doc = "", []
            continue
        namespace = NAMESPACE.match(head.strip()) if code == "{" else None
        if namespace:
            spaces.append(re.sub(r"\binline\b|\bSHARDKIT_((?:CHECKED_)?BUILD|FACE|FORM|HOST_TARGET)\b|\s|::$", "", namespace["name"]).rstrip(":"))
            head, doc = "", []
            continue
        space = [part for name in spaces for part in name.split("::") if part]
        what = declared(head.strip() + (" {" if code == "{" else ""))
        if what and space[:1] == ["shardkit"] and "detail" not in space and not (found and found[-1].line == begun):
            found.append(Name("::".join(space[1:] + [what[1]]), what[0], header, begun, first_sentence(doc)))
        if code == "{":
            skipping = 1
            head += "{"
        else:
            head = ""
        doc = []
    return found


def public_names(root, headers):
    """One entry for each name and header, of which the first documented declaration speaks."""
    names = {}
    for header in headers:
        for name in names_of(header, (root / "include" / header).read_text(encoding="utf-8")):
            known = names.get((name.name, header))
            if known is None or (not known.sentence and name.sentence):
                names[name.name, header] = name
    return list(names.values())

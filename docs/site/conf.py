# SPDX-License-Identifier: Apache-2.0
"""The site of chunkmem: sh tools/site.sh makes it, from the pages in docs/ and the comments in include/."""

import os
import pathlib
import re
import subprocess
import sys

here = pathlib.Path(__file__).parent
sys.path.insert(0, str(here))

project = "chunkmem"
author = "the chunkmem authors"
version_line = re.search(r"^## ([0-9.]+)", (here / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
release = version = version_line.group(1)
top = pathlib.Path(os.environ["CHUNKMEM_TOP"])
commit = subprocess.run(["git", "-C", top, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()

# Words that readers search for, and the heading that they look for: it comes first, before pages that have the word more often.
SEARCHED_WORDS = {
    "README": {"Beside other libraries": "offload, ZeRO-Offload, DeepSpeed, FSDP"},
    "docs/checkpoints": {"Files of other trainers": "Hugging Face, safetensors"},
    "docs/errors": {"Errors": "out of memory, OOM"},
    "docs/ranks": {"On several ranks": "ranks, data parallel, ZeRO"},
    "docs/recipes": {
        "SGD": "SGD",
        "A learning-rate schedule": "schedule, scheduler, warm-up",
        "Gradient accumulation": "gradient accumulation, micro-batches",
        "Evaluation": "evaluation, validation",
        "LoRA": "LoRA",
        "Gradient clipping": "clip, clip_grad_norm",
        "Save and resume": "resume",
        "A kernel of your own": "custom kernel, custom optimizer",
    },
}

extensions = ["myst_parser", "breathe", "sphinx_copybutton", "api_pages"]
exclude_patterns = ["style", "LICENSE"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

breathe_projects = {"chunkmem": os.environ["CHUNKMEM_XML"]}
breathe_default_project = "chunkmem"
breathe_order_parameters_first = False
primary_domain = "cpp"
highlight_language = "none"
nitpicky = False
cpp_maximum_signature_line_length = 90

html_theme = "furo"
html_title = f"chunkmem {release}"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_search_scorer = str(here / "style" / "scorer.js")
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
pygments_dark_style = "github-dark"


def repair_links(app, docname, source):
    """Pages name files of the tree. Names of pages become links here, and links to what is no page become names."""
    folder = pathlib.PurePosixPath(docname).parent

    def link(found):
        name = found.group(1)
        if name == docname + ".md" or not (here / name).is_file():
            return found.group(0)
        return f"[]({os.path.relpath(name, folder).replace(os.sep, '/')})"

    def unlink(found):
        target = here / folder / found.group(2).split("#")[0]
        if ":" in found.group(2) or found.group(2).startswith("#"):
            return found.group(0)
        if not target.is_file():
            return found.group(1)
        return f"[]({found.group(2)})" if found.group(1).strip("`").endswith((".md", "docs/policies")) else found.group(0)  # by its title

    parts = re.split(r"(^```.*?^```$)", source[0], flags=re.M | re.S)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"(?<!\[)`((?:docs|examples)/[a-z0-9_/]+[.]md|[A-Z]+[.]md)`(?!\])", link, parts[at])
        parts[at] = re.sub(r"(?<!!)\[([^\]\[]*)\]\(([^)\s]+)\)", unlink, parts[at])
    source[0] = "".join(parts)
    for heading, words in SEARCHED_WORDS.get(docname, {}).items():
        entries = "\n\n```{index} ! " + words.replace(", ", "\n```\n```{index} ! ") + "\n```\n"
        source[0], count = re.subn("^#+ " + re.escape(heading) + "$", lambda found: found.group(0) + entries, source[0], count=1, flags=re.M)
        if count != 1:
            raise ValueError(f"{docname} has no heading '{heading}', which conf.py names")
    if docname == "index":
        source[0] += f"\nThis is version {release}{', of commit ' + commit if commit else ''}. [Changes](CHANGELOG.md) has all versions.\n"
    if docname == "docs/policies/index":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n[!i]*\n```\n"


def setup(app):
    app.connect("source-read", repair_links)
